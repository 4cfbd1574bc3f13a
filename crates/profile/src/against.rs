//! Two reports beside each other: what became faster, what slower, and whether they may be compared at all.

use std::fmt::Write;

use crate::explain::words::columns;
use crate::record::{BenchReport, LayerRecord, PrecisionRecord, SCHEMA, Timing};
use crate::view::short;

/// A layer is listed when it moved by this share of its time …
const LAYER_MOVED: f64 = 0.02;
/// … and by this share of the pass.
const PASS_MOVED: f64 = 0.002;

/// Reads a report, refusing other files.
///
/// # Errors
/// What is wrong with the text, as the end of a sentence.
pub fn parse(text: &[u8]) -> Result<BenchReport, String> {
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|e| format!("it is no JSON ({e})"))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => {
            return Err(format!(
                "expected a report of schema {SCHEMA}, found {other}"
            ));
        }
        None => return Err(format!("expected a report of schema {SCHEMA}, found none")),
    }
    serde_json::from_value(value).map_err(|e| format!("the report is damaged ({e})"))
}

/// Why figures of these reports differ for other reasons than the program: a sentence each.
pub fn warnings(old: &BenchReport, new: &BenchReport) -> Vec<String> {
    let (a, b) = (&old.settings, &new.settings);
    let mut found = Vec::new();
    let mut differs = |what: &str, old: &str, new: &str| {
        if old != new {
            found.push(format!("{what} differs: {old} before, {new} now"));
        }
    };
    differs("the device", &old.device.name, &new.device.name);
    differs(
        "the device code",
        old.device.code.as_deref().unwrap_or("none"),
        new.device.code.as_deref().unwrap_or("none"),
    );
    differs(
        "the driver",
        old.device.driver.as_deref().unwrap_or("none"),
        new.device.driver.as_deref().unwrap_or("none"),
    );
    differs(
        "the processor",
        &old.machine.processor,
        &new.machine.processor,
    );
    let numbers = [
        (
            "the number of threads",
            old.machine.threads,
            new.machine.threads,
        ),
        ("the number of frames", a.frames, b.frames),
        ("the number of points", a.points, b.points),
        ("the number of clips in a run", a.batch, b.batch),
    ];
    for (what, old, new) in numbers {
        differs(what, &old.to_string(), &new.to_string());
    }
    let size = |width: usize, height: usize| format!("{width}×{height}");
    differs(
        "the picture's size",
        &size(a.width, a.height),
        &size(b.width, b.height),
    );
    differs("the model", &a.model, &b.model);
    differs("the clip", &a.clip, &b.clip);
    found
}

/// What changed, per precision and layer.
pub fn text(old: &BenchReport, new: &BenchReport) -> String {
    let mut out = format!(
        "Against {}{}:\n",
        old.program,
        old.commit
            .as_ref()
            .map_or_else(String::new, |commit| format!(" ({commit})"))
    );
    for warning in warnings(old, new) {
        let _ = writeln!(out, "  warning: {warning}");
    }
    for now in &new.precisions {
        match old.precisions.iter().find(|p| p.dtype == now.dtype) {
            Some(before) => out.push_str(&precision(before, now)),
            None => {
                let _ = writeln!(out, "\n{}: was not measured before", now.dtype);
            }
        }
    }
    for gone in &old.precisions {
        if !new.precisions.iter().any(|p| p.dtype == gone.dtype) {
            let _ = writeln!(out, "\n{}: is not measured any more", gone.dtype);
        }
    }
    out
}

fn precision(before: &PrecisionRecord, now: &PrecisionRecord) -> String {
    if same(before, now) {
        return format!("\n{}: nothing changed\n", now.dtype);
    }
    let mut rows = vec![
        ["ms", "before", "now", "change", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut timing = |name: &str, before: Option<&Timing>, now: Option<&Timing>| {
        if let (Some(before), Some(now)) = (before, now)
            && before.median_ms.max(now.median_ms) > 0.0
        {
            let apart = now.min_ms > before.p95_ms || now.p95_ms < before.min_ms;
            let note = if apart { "" } else { "within the runs' spread" };
            rows.push(row(name, before.median_ms, now.median_ms, note));
        }
    };
    timing("model", Some(&before.model), Some(&now.model));
    timing("profiled", Some(&before.profiled), Some(&now.profiled));
    timing("decode", Some(&before.decode), Some(&now.decode));
    timing("upload", before.upload.as_ref(), now.upload.as_ref());
    timing("download", before.download.as_ref(), now.download.as_ref());
    timing(
        "end to end",
        Some(&before.end_to_end),
        Some(&now.end_to_end),
    );
    let mut still = 0;
    let pass = before.profiled.median_ms.max(now.profiled.median_ms);
    for layer in &now.layers {
        let Some(earlier) = named(before, &layer.name) else {
            rows.push(row(&layer.name, 0.0, layer.median_ms, "new"));
            continue;
        };
        let moved = (layer.median_ms - earlier.median_ms).abs();
        let work = layer.cost != earlier.cost || layer.calls != earlier.calls;
        if work {
            rows.push(row(
                &layer.name,
                earlier.median_ms,
                layer.median_ms,
                "its work changed",
            ));
        } else if moved > LAYER_MOVED * earlier.median_ms && moved > PASS_MOVED * pass {
            rows.push(row(&layer.name, earlier.median_ms, layer.median_ms, ""));
        } else {
            still += 1;
        }
    }
    for layer in &before.layers {
        if named(now, &layer.name).is_none() {
            rows.push(row(&layer.name, layer.median_ms, 0.0, "gone"));
        }
    }
    let mut out = format!("\n{}\n{}", now.dtype, columns(&rows));
    if still > 0 {
        let _ = writeln!(out, "  {still} layers took about as long as before.");
    }
    out
}

fn named<'a>(precision: &'a PrecisionRecord, name: &str) -> Option<&'a LayerRecord> {
    precision.layers.iter().find(|layer| layer.name == name)
}

/// Whether every time and every layer is the same to the last digit.
fn same(before: &PrecisionRecord, now: &PrecisionRecord) -> bool {
    before.model == now.model
        && before.end_to_end == now.end_to_end
        && before.profiled == now.profiled
        && before.layers == now.layers
}

fn row(name: &str, before: f64, now: f64, note: &str) -> Vec<String> {
    let change = if before > 0.0 && now > 0.0 {
        format!("{:+.1} %", 100.0 * (now / before - 1.0))
    } else {
        "–".to_owned()
    };
    let cell = |ms: f64| {
        if ms > 0.0 {
            short(ms)
        } else {
            "–".to_owned()
        }
    };
    vec![
        name.to_owned(),
        cell(before),
        cell(now),
        change,
        note.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::report;

    #[test]
    fn a_report_against_itself_changes_nothing() {
        let report = report();
        let text = text(&report, &report);
        assert_eq!(text.matches("nothing changed").count(), 2, "{text}");
        assert!(!text.contains("warning"));
    }

    #[test]
    fn what_moved_is_listed_with_its_direction() {
        let old = report();
        let mut new = report();
        new.precisions[0].model = Timing::new(vec![16.0, 17.0]);
        new.precisions[0].layers[0].median_ms = 12.0;
        new.precisions[0].layers[1].name = "refine.other".to_owned();
        new.precisions[1].dtype = "f16".to_owned();
        new.settings.points = 65;
        new.device.name = "Another".to_owned();
        let text = text(&old, &new);
        let line = |start: &str| {
            let found = text.lines().map(str::trim).find(|l| l.starts_with(start));
            found.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line("model").unwrap(), "model 8.50 16.5 +94.1 %");
        assert_eq!(
            line("encoder.stem").unwrap(),
            "encoder.stem 6.00 12.0 +100.0 %"
        );
        assert_eq!(line("refine.other").unwrap(), "refine.other – 2.00 – new");
        assert_eq!(line("refine.norm").unwrap(), "refine.norm 2.00 – – gone");
        assert!(line("decode").unwrap().ends_with("within the runs' spread"));
        assert_eq!(line("f16").unwrap(), "f16: was not measured before");
        assert_eq!(line("bf16").unwrap(), "bf16: is not measured any more");
        assert!(text.contains("warning: the number of points differs: 64 before, 65 now"));
        assert!(text.contains("warning: the device differs"));
    }

    #[test]
    fn other_files_are_refused_with_what_was_found() {
        let whole = serde_json::to_string(&report()).unwrap();
        assert_eq!(parse(whole.as_bytes()).unwrap(), report());
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(refused("pony").starts_with("it is no JSON"));
        assert!(refused("{}").ends_with("found none"));
        let other = whole.replace("track-bench/1", "track-bench/2");
        assert!(refused(&other).ends_with("found track-bench/2"));
        let damaged = whole.replace("\"median_ms\"", "\"median\"");
        assert!(refused(&damaged).starts_with("the report is damaged"));
    }
}
