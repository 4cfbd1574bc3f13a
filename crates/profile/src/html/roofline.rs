//! The roofline plot: what each layer reaches over how many operations it makes of a byte.

use std::fmt::Write;

use super::{Text, color, inner_name};
use crate::record::{BenchReport, PrecisionRecord};
use crate::roofline::Rates;
use crate::view::{LayerView, short};

const WIDTH: f64 = 1100.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Layers of the largest share that are named in the plot.
const NAMED: usize = 10;
/// Width of a letter, about.
const LETTER: f64 = 6.6;

/// A layer in the plot.
struct Dot<'a> {
    view: &'a LayerView<'a>,
    /// Operations a byte.
    intensity: f64,
}

/// Logarithmic axes.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        LEFT + share(self.x, value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - share(self.y, value) * (HEIGHT - TOP - BOTTOM)
    }
}

fn share((low, high): (f64, f64), value: f64) -> f64 {
    (value / low).log10() / (high / low).log10()
}

pub(super) fn figure(
    report: &BenchReport,
    precision: &PrecisionRecord,
    views: &[LayerView<'_>],
) -> String {
    let dots: Vec<_> = views
        .iter()
        .filter(|v| v.record.cost.flops() > 0 && v.bytes > 0 && v.record.median_ms > 0.0)
        .map(|view| Dot {
            view,
            intensity: view.record.cost.flops() as f64 / view.bytes as f64,
        })
        .collect();
    if dots.is_empty() {
        return String::new();
    }
    let rates = Rates::new(&report.ceilings, &precision.dtype);
    let axes = axes(&dots, rates.as_ref());
    let mut out = format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline plot, {}\">\n",
        Text(&precision.dtype)
    );
    grid(&mut out, &axes);
    if let Some(rates) = rates {
        roof(&mut out, &axes, &rates);
    }
    let mut taken = points(&mut out, &axes, &dots);
    if let Some(rates) = rates {
        // The roof's own figures.
        let base = axes.y(rates.products / 1e12) - 6.0;
        let right = WIDTH - RIGHT;
        taken.push((right - 30.0 * LETTER, base - 11.0, right, base + 3.0));
    }
    names(&mut out, &axes, &dots, &mut taken);
    out.push_str("</svg>\n<figcaption>");
    out.push_str(
        "Each dot is a layer, its area the share of the time. The nearer to the line, the nearer to what the device can \
         do: the slope is memory traffic, the level the rate of products, the dashed level that of other arithmetic.",
    );
    let left_out: Vec<_> = views
        .iter()
        .filter(|v| !dots.iter().any(|d| d.view.record.name == v.record.name))
        .map(|v| v.record.name.as_str())
        .collect();
    if !left_out.is_empty() {
        let _ = write!(
            out,
            " Not in the plot, because nothing is calculated: {}.",
            Text(&left_out.join(", "))
        );
    }
    out + "</figcaption></figure>\n"
}

/// Room for every dot and for the bend of the roof.
fn axes(dots: &[Dot<'_>], rates: Option<&Rates>) -> Axes {
    let (mut x, mut y) = ((f64::INFINITY, 0.0), (f64::INFINITY, 0.0));
    let widen = |range: &mut (f64, f64), value: f64| {
        *range = (range.0.min(value), range.1.max(value));
    };
    for dot in dots {
        widen(&mut x, dot.intensity);
        widen(&mut y, dot.view.tflops);
    }
    if let Some(rates) = rates {
        widen(&mut x, rates.products / rates.bandwidth);
        widen(&mut y, rates.products / 1e12);
        widen(&mut y, rates.vector / 1e12);
    }
    Axes {
        x: (x.0 / 2.0, x.1 * 2.0),
        y: (y.0 / 2.5, y.1 * 2.0),
    }
}

/// Powers of ten with their names.
fn grid(out: &mut String, axes: &Axes) {
    let powers = |(low, high): (f64, f64)| {
        (low.log10().ceil() as i32..=high.log10().floor() as i32).map(|p| 10f64.powi(p))
    };
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for value in powers(axes.x) {
        let x = axes.x(value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            bottom + 16.0
        );
    }
    for value in powers(axes.y) {
        let y = axes.y(value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    let middle = f64::midpoint(TOP, bottom);
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations a byte</text>\
         <text class=\"soft\" x=\"14\" y=\"{middle:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 14 {middle:.1})\">TFLOP/s</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 8.0
    );
}

fn roof(out: &mut String, axes: &Axes, rates: &Rates) {
    // The slope enters at the left or at the bottom, whichever comes first.
    let slope = rates.bandwidth / 1e12;
    let products = rates.products / 1e12;
    let start = axes.x.0.max(axes.y.0 / slope);
    let bend = products / slope;
    let _ = writeln!(
        out,
        "<polyline class=\"roof\" points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
        axes.x(start),
        axes.y(start * slope),
        axes.x(bend),
        axes.y(products),
        axes.x(axes.x.1),
        axes.y(products)
    );
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} TFLOP/s, {} GB/s</text>",
        WIDTH - RIGHT,
        axes.y(products) - 6.0,
        short(products),
        short(rates.bandwidth / 1e9)
    );
    let vector = rates.vector / 1e12;
    if (vector / products - 1.0).abs() > 0.02 {
        let from = (vector / slope).clamp(axes.x.0, axes.x.1);
        let y = axes.y(vector);
        let _ = writeln!(
            out,
            "<line class=\"dash\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            axes.x(from),
            WIDTH - RIGHT
        );
    }
}

fn radius(view: &LayerView<'_>) -> f64 {
    4.0 + 40.0 * (view.share / std::f64::consts::PI).sqrt()
}

/// A rectangle: left, top, right, bottom.
type Area = (f64, f64, f64, f64);

/// Draws the dots, the largest first; what they cover.
fn points(out: &mut String, axes: &Axes, dots: &[Dot<'_>]) -> Vec<Area> {
    let mut sorted: Vec<_> = dots.iter().collect();
    sorted.sort_by(|a, b| b.view.share.total_cmp(&a.view.share));
    let mut covered = Vec::new();
    for dot in sorted {
        let (x, y, r) = (
            axes.x(dot.intensity),
            axes.y(dot.view.tflops),
            radius(dot.view),
        );
        let name = &dot.view.record.name;
        let ratio = dot.view.ratio.map_or_else(String::new, |ratio| {
            format!(", {} times its floor", short(ratio))
        });
        let _ = writeln!(
            out,
            "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" fill=\"var({})\"><title>{}: {} ms, {} \
             TFLOP/s, {} operations a byte{ratio}</title></circle>",
            color(name),
            Text(name),
            short(dot.view.record.median_ms),
            short(dot.view.tflops),
            short(dot.intensity)
        );
        let inner = r * 0.7;
        covered.push((x - inner, y - inner, x + inner, y + inner));
    }
    covered
}

/// Names the layers that take most, where there is room beside their dots.
fn names(out: &mut String, axes: &Axes, dots: &[Dot<'_>], taken: &mut Vec<Area>) {
    let mut sorted: Vec<_> = dots.iter().collect();
    sorted.sort_by(|a, b| b.view.share.total_cmp(&a.view.share));
    for dot in sorted.into_iter().take(NAMED) {
        let (x, y, r) = (
            axes.x(dot.intensity),
            axes.y(dot.view.tflops),
            radius(dot.view),
        );
        let name = inner_name(&dot.view.record.name);
        let width = LETTER * name.len() as f64;
        let (left, right, middle) = (x - r - 4.0 - width, x + r + 4.0, x - width / 2.0);
        let (above, below) = (y - r - 5.0, y + r + 14.0);
        let places = [
            (right, y + 4.0),
            (left, y + 4.0),
            (middle, above),
            (middle, below),
            (x, above),
            (x, below),
            (x - width, above),
            (x - width, below),
            (middle, above - 14.0),
            (middle, below + 14.0),
        ];
        let free = places.into_iter().find(|&(left, base)| {
            let area = (left, base - 11.0, left + width, base + 3.0);
            let inside = area.0 >= LEFT
                && area.2 <= WIDTH - RIGHT
                && area.1 >= TOP
                && area.3 <= HEIGHT - BOTTOM;
            inside && !taken.iter().any(|t| overlap(t, &area))
        });
        if let Some((left, base)) = free {
            taken.push((left, base - 11.0, left + width, base + 3.0));
            let _ = writeln!(
                out,
                "<text x=\"{left:.1}\" y=\"{base:.1}\" pointer-events=\"none\">{}</text>",
                Text(name)
            );
        }
    }
}

fn overlap(a: &Area, b: &Area) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}
