//! Observed times and what explains them, as people read it.

use super::Explanation;
use super::compare::{Comparison, Pair, TimesOf};
use super::words::{columns, plain, time, times, wrap};

pub(super) fn text(comparison: &Comparison, whole: &Explanation) -> String {
    let mut out = String::from("## Observed times\n\n");
    let title = |name: &str| {
        let found = comparison.observed.iter().find(|t| t.device == name);
        found.map_or_else(|| name.to_owned(), |t| t.title.clone())
    };
    let seen: Vec<_> = comparison.observed.iter().rev().map(seen).collect();
    let s = &whole.made_from.settings;
    let whose = if comparison.public {
        "A public report of a tracker with dense 4D correlation and a transformer, all in f32, 47 frames of \
         256×256, its number of points not known:"
    } else {
        "Given, and taken for f32:"
    };
    out.push_str(&wrap("", &format!("{whose} {}.", seen.join("; "))));
    out.push_str(&wrap(
        "",
        &format!(
            "Floors are those of this report's work, {} frames of {}×{}, {} points; it stands for work of this \
             kind, not for that program's.",
            s.frames, s.width, s.height, s.points
        ),
    ));
    if let Some(pair) = &comparison.pair {
        let (slow, fast) = (title(&pair.slow), title(&pair.fast));
        out.push_str(&hardware(comparison, pair, &slow, &fast));
        out.push_str(&rest(pair, &slow));
    }
    out.push_str(&at_best(comparison));
    out
}

fn seen(t: &TimesOf) -> String {
    format!(
        "{} on {}, {} times its floor of {} in f32",
        time(t.seconds * 1e3),
        t.title,
        times(t.over_floor),
        time(t.floor_ms)
    )
}

fn hardware(comparison: &Comparison, pair: &Pair, slow: &str, fast: &str) -> String {
    let mut out = String::from("\n### What the hardware explains\n\n");
    let head = ["rates by the datasheets", &pair.slow, &pair.fast, "ratio"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for rate in &pair.rates {
        rows.push(vec![
            format!("{}, {}", rate.what, rate.unit),
            plain(rate.slow),
            plain(rate.fast),
            times(rate.ratio),
        ]);
    }
    out.push_str(&columns(&rows));
    out.push('\n');
    let head = [
        "floors of this work",
        &pair.slow,
        &pair.fast,
        "ratio",
        "reachable",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for mix in &pair.mixes {
        rows.push(vec![
            mix.what.to_owned(),
            time(mix.slow_ms),
            time(mix.fast_ms),
            times(mix.ratio),
            times(mix.reachable_ratio),
        ]);
    }
    out.push_str(&columns(&rows));
    out.push('\n');
    let ratios = || pair.mixes.iter().flat_map(|m| [m.ratio, m.reachable_ratio]);
    let (low, high) = (
        ratios().fold(f64::MAX, f64::min),
        ratios().fold(0.0, f64::max),
    );
    let most = pair.most.max(pair.most_reachable);
    let seconds = |name: &str| {
        let found = comparison.observed.iter().find(|t| t.device == name);
        found.map_or(0.0, |t| t.seconds)
    };
    let (fast_s, slow_s) = (seconds(&pair.fast), seconds(&pair.slow));
    let verdict = if pair.ratio <= high {
        "The hardware alone can explain it.".to_owned()
    } else if pair.ratio <= most {
        "The hardware can explain it only if nearly all of the time was spent where the two differ most."
            .to_owned()
    } else {
        format!(
            "At least {} of the {} times have another cause, and {} to {} times if that work is like this one.",
            times(pair.left),
            times(pair.ratio),
            times(pair.ratio / high),
            times(pair.ratio / low),
        )
    };
    // The middle mix says something only where one device has tf32.
    let defaults = match &pair.mixes[..] {
        [all, usual, ..] if (usual.ratio - all.ratio).abs() > 0.05 => format!(
            " ({} to {} with PyTorch's defaults)",
            times(usual.ratio.min(usual.reachable_ratio)),
            times(usual.ratio.max(usual.reachable_ratio)),
        ),
        _ => String::new(),
    };
    let carried = |ratio: f64| time(fast_s * ratio * 1e3);
    out.push_str(&wrap(
        "",
        &format!(
            "{slow} took {} times as long. For work like this one the hardware explains {} to {} times, by how \
             much of it ran in tf32{defaults}, and {} times at most whatever the layers are (the largest ratio of any \
             rate, at reachable rates). {} on {fast} would be {} to {} on {slow}, at most {}; {} were seen. {verdict}",
            times(pair.ratio),
            times(low),
            times(high),
            times(most),
            time(fast_s * 1e3),
            carried(low),
            carried(high),
            carried(most),
            time(slow_s * 1e3),
        ),
    ));
    out
}

fn rest(pair: &Pair, slow: &str) -> String {
    if pair.causes.is_empty() {
        return String::new();
    }
    let mut out = format!("\n### What may explain the rest on {slow}\n\n");
    out.push_str(&wrap(
        "",
        "Candidates, the likeliest first. Their evidence was measured on another device, as said; nothing was \
         measured on the two.",
    ));
    for cause in &pair.causes {
        let text = format!("{}: {} {}", cause.what, cause.evidence, cause.verdict);
        out.push_str(&wrap("- ", &text));
    }
    out
}

fn at_best(comparison: &Comparison) -> String {
    let mut out = String::from("\n### What it would take there with this engine, at best\n\n");
    let head = ["device, precision", "floor", "reachable", "predicted"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for best in &comparison.here {
        rows.push(vec![
            format!("{}, {}", best.device, best.dtype),
            time(best.floor_ms),
            time(best.reachable_ms),
            best.predicted_ms.map_or_else(|| "–".to_owned(), time),
        ]);
    }
    out.push_str(&columns(&rows));
    out.push('\n');
    for t in comparison.observed.iter().rev() {
        let of_device = || comparison.here.iter().filter(|b| b.device == t.device);
        let best = of_device().min_by(|a, b| a.reachable_ms.total_cmp(&b.reachable_ms));
        let f32 = of_device().find(|b| b.dtype == "f32");
        if let (Some(best), Some(f32)) = (best, f32) {
            let faster = |ms: f64| times(t.seconds * 1e3 / ms);
            out.push_str(&wrap(
                "- ",
                &format!(
                    "Against the {} seen on {}, reachable code takes {} times less in f32 and {} times less in \
                     {}.",
                    time(t.seconds * 1e3),
                    t.title,
                    faster(f32.reachable_ms),
                    faster(best.reachable_ms),
                    best.dtype,
                ),
            ));
        }
    }
    out
}
