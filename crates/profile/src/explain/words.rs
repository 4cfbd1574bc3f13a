//! Numbers and lists as people write them, and lines of a width.

/// Columns of the text.
pub(crate) const WIDTH: usize = 96;

/// A time: three digits, in the unit that suits it.
pub(crate) fn time(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{} s", digits(ms / 1000.0))
    } else if ms >= 0.01 || ms == 0.0 {
        format!("{} ms", digits(ms))
    } else {
        format!("{} µs", digits(ms * 1000.0))
    }
}

/// A number with three digits, and no more than two of them behind the point.
pub(crate) fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// A rate or size without digits that say nothing: 65, 8.1, 989, 0.051.
pub(crate) fn plain(x: f64) -> String {
    if x > 0.0 && x < 0.95 {
        // Two digits: as many places as there are zeros behind the point, and two more.
        let places = (-x.log10()).floor().max(0.0) as usize + 2;
        format!("{x:.places$}")
    } else if x >= 99.95 || (x - x.round()).abs() < 0.05 {
        format!("{x:.0}")
    } else {
        format!("{x:.1}")
    }
}

/// How many times: two digits below 20.
pub(crate) fn times(x: f64) -> String {
    if x >= 19.95 {
        format!("{x:.0}")
    } else {
        format!("{x:.1}")
    }
}

/// A share in whole percent, but never 0 for something that is there.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.5 => "under 1 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// The same for a narrow column.
pub(super) fn short_percent(share: f64) -> String {
    percent(share).replace("under ", "<")
}

/// A count with commas: 12,032.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in GiB, or MiB where they are few.
pub(crate) fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1024.0 {
        format!("{} GiB", plain(mib / 1024.0))
    } else {
        format!("{mib:.0} MiB")
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list<S: AsRef<str>>(items: &[S]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<_> = most.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", most.join(", "), last.as_ref())
        }
    }
}

/// Breaks a paragraph into lines: the first after `first`, the others after as many blanks.
pub(crate) fn wrap(first: &str, text: &str) -> String {
    let indent = first.chars().count();
    let mut out = first.to_owned();
    let mut column = indent;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// Rows of cells as columns: the first to the left, the others to the right. Trailing blanks are cut.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            if column == 0 {
                line.push_str(&format!("{cell}{pad}"));
            } else {
                line.push_str(&format!("  {pad}{cell}"));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (ms, text) in [
            (0.0, "0.00 ms"),
            (0.0042, "4.20 µs"),
            (0.311, "0.31 ms"),
            (9.996, "10.0 ms"),
            (31.24, "31.2 ms"),
            (99.96, "100 ms"),
            (254.3, "254 ms"),
            (1234.0, "1.23 s"),
            (85_000.0, "85.0 s"),
        ] {
            assert_eq!(time(ms), text);
        }
        assert_eq!(
            (percent(0.624), percent(0.001), percent(0.0)),
            ("62 %".into(), "under 1 %".into(), "0 %".into())
        );
        assert_eq!((times(8.02), times(170.0)), ("8.0".into(), "170".into()));
        assert_eq!(
            (plain(0.051), plain(0.0022), plain(0.5), plain(0.0)),
            ("0.051".into(), "0.0022".into(), "0.50".into(), "0".into())
        );
        assert_eq!(
            (plain(65.0), plain(8.1), plain(989.4)),
            ("65".into(), "8.1".into(), "989".into())
        );
        assert_eq!(short_percent(0.001), "<1 %");
        assert_eq!(
            (count(7), count(431), count(12_032), count(1_234_567)),
            (
                "7".into(),
                "431".into(),
                "12,032".into(),
                "1,234,567".into()
            )
        );
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(5 << 20), "5 MiB");
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(list::<&str>(&[]), "");
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b"]), "a and b");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn paragraphs_keep_their_words_and_stay_inside_the_width() {
        let text = "word ".repeat(60);
        let wrapped = wrap("- ", text.trim_end());
        assert!(wrapped.lines().count() > 2);
        assert!(wrapped.lines().all(|l| l.chars().count() <= WIDTH));
        assert!(wrapped.lines().skip(1).all(|l| l.starts_with("  word")));
        assert_eq!(wrapped.matches("word").count(), 60);
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "10".into()],
            vec!["long".into(), "µ".into()],
        ];
        assert_eq!(columns(&rows), "  a     10\n  long   µ\n");
    }
}
