//! Points from a CSV or JSON file, by field name so that an order is never guessed.

use std::path::Path;

use serde::Deserialize;

use crate::error::os_reason;
use crate::{Error, QueryPoint, Result};

const EXPECTED: &str =
    "give a CSV with a header that names t, x and y, or a JSON array of objects with t, x and y";

/// Fields as they stand in a file. Unknown ones are left alone: exported files carry more.
#[derive(Deserialize)]
struct Row {
    t: f32,
    x: f32,
    y: f32,
    #[serde(default)]
    label: Option<String>,
}

impl From<Row> for QueryPoint {
    fn from(row: Row) -> Self {
        Self {
            t: row.t,
            x: row.x,
            y: row.y,
            label: row.label.filter(|label| !label.is_empty()),
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<QueryPoint>> {
    let bytes = std::fs::read(path)
        .map_err(|e| Error::input(path, format!("cannot read the points ({})", os_reason(&e))))?;
    // Spreadsheets put a byte order mark in front of what they export.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let points = match extension.to_ascii_lowercase().as_str() {
        "json" => from_json(bytes),
        "csv" => from_csv(bytes),
        other => Err(format!(
            "points are read from .csv or .json, not from '.{other}'; {EXPECTED}"
        )),
    }
    .map_err(|reason| Error::input(path, reason))?;
    if points.is_empty() {
        return Err(Error::input(
            path,
            format!("no points are in the file; {EXPECTED}"),
        ));
    }
    Ok(points)
}

fn from_json(bytes: &[u8]) -> Result<Vec<QueryPoint>, String> {
    let rows: Vec<Row> = serde_json::from_slice(bytes)
        .map_err(|e| format!("cannot be read as points ({e}); {EXPECTED}"))?;
    Ok(rows.into_iter().map(Into::into).collect())
}

fn from_csv(bytes: &[u8]) -> Result<Vec<QueryPoint>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(bytes);
    let header = reader
        .headers()
        .map_err(|e| format!("cannot be read as CSV ({e}); {EXPECTED}"))?;
    let column = |name: &str| header.iter().position(|field| field == name);
    if header.is_empty() {
        return Ok(Vec::new());
    }
    let (Some(t), Some(x), Some(y)) = (column("t"), column("x"), column("y")) else {
        let found = header.iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "the header '{found}' does not name t, x and y; {EXPECTED}"
        ));
    };
    let label = column("label");
    let mut points = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| format!("cannot be read as CSV ({e}); {EXPECTED}"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = |at: usize, name: &str| {
            let text = record.get(at).unwrap_or("");
            text.parse::<f32>()
                .map_err(|_| format!("line {line} has '{text}' for {name}; write a number there"))
        };
        points.push(QueryPoint {
            t: number(t, "t")?,
            x: number(x, "x")?,
            y: number(y, "y")?,
            label: label
                .and_then(|at| record.get(at))
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        });
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn csv_fields_are_found_by_name() {
        let points = from_csv(b"label, y,x , t,extra\nnose,2,1.5,3,?\n,4,5,6,?\n").unwrap();
        assert_eq!(
            points,
            [
                QueryPoint::new(3.0, 1.5, 2.0).labelled("nose"),
                QueryPoint::new(6.0, 5.0, 4.0)
            ]
        );
    }

    #[test]
    fn json_fields_are_found_by_name() {
        let points = from_json(br#"[{"y":2,"x":1.5,"t":3,"label":"nose","more":null}]"#).unwrap();
        assert_eq!(points, [QueryPoint::new(3.0, 1.5, 2.0).labelled("nose")]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence() {
        let cases: [(&[u8], &str); 3] = [
            (b"frame,x,y\n1,2,3\n", "the header 'frame, x, y'"),
            (b"t,x,y\n1,2,3\n1,two,3\n", "line 3 has 'two' for x"),
            (b"t,x,y\n1,2\n", "cannot be read as CSV"),
        ];
        for (text, expected) in cases {
            let error = from_csv(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(from_csv(b"").unwrap().is_empty());
        assert!(from_csv(b"t,x,y\n").unwrap().is_empty());
        assert!(from_json(br#"{"t":1}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_points_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_csv(&bytes);
            let _ = from_json(&bytes);
        }
    }
}
