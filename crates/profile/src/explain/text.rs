//! An explanation as people read it: plain text that is also Markdown enough to paste.

use super::words::{columns, percent, plain, short_percent, size, time, wrap};
use super::{Explanation, InPrecision, OfStage, OnDevice, compare_text};
use crate::devices::{DTYPES, Device};
use crate::roofline::Bound;

const HOW_TO_READ: &str = "A floor is arithmetic: a layer's operations and bytes, as its definition counts \
    them, over the rates of the datasheet. Reachable is the same at the rates that good code reaches. A \
    prediction is a guess: the time measured here, scaled by the ratio of the reachable floors.";

impl Explanation {
    /// The whole text, with a table of every layer where `layers` is set.
    pub fn text(&self, layers: bool) -> String {
        let mut out = self.head();
        for on in &self.devices {
            out.push('\n');
            out.push_str(&section(on, self));
            if layers {
                out.push('\n');
                out.push_str(&layer_table(on));
            }
        }
        if let Some(comparison) = &self.comparison {
            out.push('\n');
            out.push_str(&compare_text::text(comparison, self));
        }
        out
    }

    fn head(&self) -> String {
        let from = &self.made_from;
        let s = &from.settings;
        let clips = if s.batch > 1 {
            format!("{} clips of ", s.batch)
        } else {
            String::new()
        };
        let what = format!(
            "{}: {clips}{} frames of {}×{}, {} points. Measured on {} by {}.",
            s.model, s.frames, s.width, s.height, s.points, from.device, from.program
        );
        wrap("# ", &what) + "\n" + &wrap("", HOW_TO_READ)
    }
}

fn section(on: &OnDevice, whole: &Explanation) -> String {
    let own = if on.own { " (this report's)" } else { "" };
    let mut out = format!("## {}{own}\n\n", on.device.title);
    out.push_str(&wrap("", &figures(&on.device)));
    out.push('\n');
    out.push_str(&precision_table(on));
    if let Some(reason) = &on.no_prediction {
        out.push_str(&wrap("  ", &format!("Nothing is predicted: {reason}.")));
    }
    out.push('\n');
    out.push_str(&stage_table(on));
    out.push('\n');
    for sentence in &on.sentences {
        out.push_str(&wrap("- ", sentence));
    }
    if on.own && on.floors_from != on.device.name && whole.made_from.kind == "cpu" {
        out.push_str(&wrap(
            "- ",
            "A CPU has no datasheet here: its floors use the rates that the report measured.",
        ));
    }
    out
}

/// A device's figures in one line.
fn figures(device: &Device) -> String {
    let rates: Vec<_> = DTYPES
        .into_iter()
        .filter_map(|dtype| Some(format!("{dtype} {}", plain(*device.tflops.get(dtype)?))))
        .collect();
    let cache = device
        .l2_mib
        .map_or_else(String::new, |mib| format!(" ({} MiB of cache)", plain(mib)));
    let memory = if device.memory_gib > 0.0 {
        format!("{} GiB", plain(device.memory_gib))
    } else {
        "memory of unknown size".to_owned()
    };
    format!(
        "{memory} at {} GB/s{cache}; products, TFLOP/s: {}; other arithmetic {}. Reachable: {}.",
        plain(device.bandwidth_gbs),
        rates.join(", "),
        plain(device.vector_tflops),
        device.reachable.source,
    )
}

fn precision_table(on: &OnDevice) -> String {
    let own = on.own;
    let predicted = on.precisions.iter().any(|p| p.predicted_ms.is_some());
    let mut head = vec!["precision", "floor", "reachable"];
    if own {
        head.extend(["measured", "÷ floor"]);
    }
    if predicted {
        head.push("predicted");
    }
    head.push("memory");
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    for p in &on.precisions {
        let mut row = vec![p.dtype.clone(), time(p.floor_ms), time(p.reachable_ms)];
        if own {
            row.push(optional(p.measured_ms.map(time)));
            row.push(optional(
                p.measured_ms.map(|ms| format!("{:.1}", ms / p.floor_ms)),
            ));
        }
        if predicted {
            row.push(optional(p.predicted_ms.map(time)));
        }
        row.push(optional(p.memory.as_ref().map(|m| {
            let fits = if m.fits { "" } else { ", does not fit" };
            size(m.bytes) + fits
        })));
        rows.push(row);
    }
    columns(&rows)
}

/// Stages in the order of f32's floor: floor, share and bound in every precision that changes something.
fn stage_table(on: &OnDevice) -> String {
    let shown = shown(on);
    let Some(first) = shown.first() else {
        return String::new();
    };
    let mut head = vec!["floor by stage".to_owned()];
    for p in &shown {
        head.extend([p.dtype.clone(), "share".to_owned(), "bound".to_owned()]);
    }
    let mut rows = vec![head];
    for stage in &first.stages {
        let mut row = vec![stage.stage.label().to_owned()];
        for p in &shown {
            let same = |s: &&OfStage| s.stage == stage.stage;
            let cells = p.stages.iter().find(same).map(|s| {
                [
                    time(s.floor_ms),
                    short_percent(s.share),
                    short(s.bound).to_owned(),
                ]
            });
            row.extend(cells.unwrap_or_default());
        }
        rows.push(row);
    }
    let mut row = vec!["sum".to_owned()];
    for p in &shown {
        row.extend([time(p.floor_ms), String::new(), String::new()]);
    }
    rows.push(row);
    columns(&rows)
}

/// bf16 has f16's numbers wherever both are there, and is not shown twice.
fn shown(on: &OnDevice) -> Vec<&InPrecision> {
    let both = on.device.offers("f16");
    let shown = on
        .precisions
        .iter()
        .filter(|p| !(both && p.dtype == "bf16"));
    shown.collect()
}

fn layer_table(on: &OnDevice) -> String {
    let shown = shown(on);
    let Some(first) = shown.first() else {
        return String::new();
    };
    let mut head = vec!["floor by layer".to_owned(), "calls".to_owned()];
    for p in &shown {
        head.extend([p.dtype.clone(), "bound".to_owned()]);
        if p.measured_ms.is_some() {
            head.push("measured".to_owned());
        } else if p.predicted_ms.is_some() {
            head.push("predicted".to_owned());
        }
    }
    let mut rows = vec![head];
    for layer in &first.layers {
        let mut row = vec![layer.name.clone(), layer.calls.to_string()];
        for p in &shown {
            let Some(l) = p.layers.iter().find(|l| l.name == layer.name) else {
                let cells = if p.measured_ms.or(p.predicted_ms).is_some() {
                    3
                } else {
                    2
                };
                row.extend((0..cells).map(|_| String::from("–")));
                continue;
            };
            row.extend([time(l.floor_ms), short(l.bound).to_owned()]);
            if p.measured_ms.or(p.predicted_ms).is_some() {
                row.push(optional(l.measured_ms.or(l.predicted_ms).map(time)));
            }
        }
        rows.push(row);
    }
    columns(&rows)
}

/// A bound in a narrow column.
fn short(bound: Bound) -> &'static str {
    match bound {
        Bound::Products => "prod",
        Bound::Arithmetic => "arith",
        Bound::Bandwidth => "bytes",
        Bound::Launch => "launch",
    }
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// The table of devices with where its figures stand.
pub fn device_table(devices: &[Device]) -> String {
    let mut rows = vec![
        [
            "device", "GiB", "GB/s", "L2 MiB", "other", "f32", "tf32", "f16", "bf16", "track",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for d in devices {
        let mut row = vec![
            d.name.clone(),
            plain(d.memory_gib),
            plain(d.bandwidth_gbs),
            optional(d.l2_mib.map(plain)),
            plain(d.vector_tflops),
        ];
        row.extend(DTYPES.map(|dtype| optional(d.tflops.get(dtype).copied().map(plain))));
        row.push(if d.runs_track() { "runs" } else { "–" }.to_owned());
        rows.push(row);
    }
    let mut out = columns(&rows);
    out.push('\n');
    out.push_str(&wrap(
        "",
        "Rates in TFLOP/s: dense, at boost clocks, products with f32 accumulation; \"other\" is f32 arithmetic \
         outside products. They are datasheet figures. Reachable shares are measured or assumed, as said.",
    ));
    for d in devices {
        out.push_str(&format!("\n{}: {}\n", d.name, d.title));
        let r = &d.reachable;
        let shares = format!(
            "reachable: bandwidth {}, other {}, f32 {}, tf32 and f16 {} ({}); a launch {} µs (assumed)",
            percent(r.bandwidth),
            percent(r.vector),
            percent(r.f32),
            percent(r.tensor),
            r.source,
            plain(d.launch_us),
        );
        let sources = d.sources.iter().map(|s| format!("source: {s}"));
        let notes = d.notes.iter().map(|n| format!("note: {n}"));
        for line in sources.chain(notes).chain([shares]) {
            out.push_str(&wrap("  ", &line));
        }
    }
    out
}
