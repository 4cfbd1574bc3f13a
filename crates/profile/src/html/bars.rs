//! Every precision's pass as a bar of its layers, above the bar of their floors.

use std::fmt::Write;

use super::{Text, color, inner_name};
use crate::record::BenchReport;
use crate::view::{LayerView, floor_ms, layers, short};

const WIDTH: f64 = 1100.0;
/// Room for the names on the left and the totals on the right.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const MEASURED: f64 = 34.0;
const FLOOR: f64 = 12.0;
const GAP: f64 = 22.0;

pub(super) fn svg(report: &BenchReport) -> String {
    let all: Vec<_> = report
        .precisions
        .iter()
        .map(|p| (p, layers(report, p)))
        .collect();
    let longest = all
        .iter()
        .map(|(p, views)| p.layers_ms().max(floor_ms(views).unwrap_or(0.0)))
        .fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / longest;
    let height = all.len() as f64 * (MEASURED + FLOOR + 2.0 + GAP);
    let mut out = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"Time of each layer in each precision\">\n"
    );
    for (n, (precision, views)) in all.iter().enumerate() {
        let top = n as f64 * (MEASURED + FLOOR + 2.0 + GAP);
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" font-weight=\"600\">{}</text>",
            LEFT - 8.0,
            top + MEASURED / 2.0 + 4.0,
            Text(&precision.dtype)
        );
        let end = bar(&mut out, views, scale, (top, MEASURED), "part", |v| {
            v.record.median_ms
        });
        label(
            &mut out,
            end,
            top + MEASURED / 2.0 + 4.0,
            &format!("{} ms", short(precision.layers_ms())),
            "",
        );
        if let Some(floor) = floor_ms(views) {
            let top = top + MEASURED + 2.0;
            let end = bar(&mut out, views, scale, (top, FLOOR), "part floor", |v| {
                v.floor.map_or(0.0, |f| f.ms())
            });
            label(
                &mut out,
                end,
                top + FLOOR - 2.0,
                &format!("floor {} ms", short(floor)),
                " class=\"soft\"",
            );
        }
    }
    out + "</svg></figure>\n"
}

/// Segments side by side; where they end.
fn bar(
    out: &mut String,
    views: &[LayerView<'_>],
    scale: f64,
    (top, height): (f64, f64),
    class: &str,
    ms: impl Fn(&LayerView<'_>) -> f64,
) -> f64 {
    let mut x = LEFT;
    for view in views {
        let (name, ms) = (&view.record.name, ms(view));
        let width = ms * scale;
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height}\" \
             fill=\"var({})\"><title>{}: {} ms</title></rect>",
            color(name),
            Text(name),
            short(ms)
        );
        let short_name = inner_name(name);
        if height == MEASURED && width > 12.0 + 6.6 * short_name.len() as f64 {
            let ink = match color(name) {
                "--encoder-norms" | "--correlation-encoder" => "dark",
                _ => "inside",
            };
            let _ = writeln!(
                out,
                "<text class=\"{ink}\" x=\"{:.2}\" y=\"{:.1}\" text-anchor=\"middle\" pointer-events=\"none\">{}</text>",
                x + width / 2.0,
                top + height / 2.0 + 4.0,
                Text(short_name)
            );
        }
        x += width;
    }
    x
}

fn label(out: &mut String, x: f64, y: f64, text: &str, class: &str) {
    let _ = writeln!(
        out,
        "<text{class} x=\"{:.2}\" y=\"{y:.1}\">{}</text>",
        x + 8.0,
        Text(text)
    );
}
