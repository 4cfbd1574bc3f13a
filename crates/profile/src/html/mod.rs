//! A report as one page that needs nothing beside it: no network, no other file, light and dark.

mod bars;
mod roofline;

use std::fmt::{self, Write};

use crate::explain::Stage;
use crate::explain::words::size;
use crate::record::{BenchReport, PrecisionRecord, Timing};
use crate::table::{product_rates, shapes};
use crate::view::{LayerView, floor_ms, layers, short};

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");
/// A layer this many times above its floor is marked.
const FAR: f64 = 3.0;
/// … where it takes at least this share of the pass.
const FAR_SHARE: f64 = 0.01;

/// The whole page.
pub fn page(report: &BenchReport) -> String {
    let s = &report.settings;
    let title = format!("{} on {}", s.model, report.device.name);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{CSS}</style>\n<h1>{}</h1>\n",
        Text(&title),
        Text(&title)
    );
    out.push_str(&facts(report));
    out.push_str("<h2>Times</h2>\n");
    out.push_str(&times(report));
    out.push_str("<h2>Where the time goes</h2>\n<p class=\"soft\">One pass with every layer timed, and below it the \
        least that each layer must take on this device: the longer of its arithmetic and its memory traffic, and its \
        launches. Layers from left to right in the order of a pass, coloured by the part of the model.</p>\n");
    out.push_str(&legend(report));
    out.push_str(&bars::svg(report));
    out.push_str("<h2>Layer by layer</h2>\n<div class=\"tabs\">");
    for p in &report.precisions {
        let _ = write!(
            out,
            "<button type=\"button\" data-show=\"{0}\" aria-pressed=\"false\">{0}</button>",
            Text(&p.dtype)
        );
    }
    out.push_str("</div>\n");
    for precision in &report.precisions {
        let views = layers(report, precision);
        let _ = writeln!(out, "<section data-dtype=\"{}\">", Text(&precision.dtype));
        out.push_str(&roofline::figure(report, precision, &views));
        out.push_str(&layer_table(precision, &views));
        out.push_str("</section>\n");
    }
    let _ = writeln!(out, "<script>\n{JS}</script>\n</html>");
    out
}

/// Text that is never taken for markup.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A layer's name without the part of the model, which its colour shows.
fn inner_name(layer: &str) -> &str {
    layer.split_once('.').map_or(layer, |(_, rest)| rest)
}

/// The style's variable that colours a layer.
fn color(layer: &str) -> &'static str {
    color_of(Stage::of(layer))
}

fn color_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Input => "--input",
        Stage::EncoderConvolutions => "--encoder-convolutions",
        Stage::EncoderNorms => "--encoder-norms",
        Stage::InitialTracks => "--initial-tracks",
        Stage::Correlation => "--correlation",
        Stage::CorrelationEncoder => "--correlation-encoder",
        Stage::Transformer => "--transformer",
        Stage::Other => "--other",
    }
}

/// What ran where.
fn facts(report: &BenchReport) -> String {
    let (s, d, c) = (&report.settings, &report.device, &report.ceilings);
    let built = report.commit.as_ref();
    let built = built.map_or_else(String::new, |commit| format!(" ({commit})"));
    let device = [
        Some(d.name.clone()),
        d.compute_capability
            .as_ref()
            .map(|c| format!("compute capability {c}")),
        d.code.as_ref().map(|c| format!("code {c}")),
        d.driver.as_ref().map(|v| format!("driver {v}")),
        d.multiprocessors.map(|n| format!("{n} multiprocessors")),
        d.clock_mhz.map(|f| format!("{f} MHz")),
        d.memory_bytes.map(size),
    ];
    let launch = c
        .launch_us
        .map_or_else(String::new, |us| format!(", {} µs a launch", short(us)));
    let batch = if s.batch > 1 {
        format!(", {} clips a run", s.batch)
    } else {
        String::new()
    };
    let rows = [
        (
            "Clip",
            format!(
                "{}: {} frames, fed in at {}×{}, {} points{batch}",
                s.clip, s.frames, s.width, s.height, s.points
            ),
        ),
        ("Weights", s.weights.clone()),
        (
            "Device",
            device.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ),
        (
            "Host",
            format!(
                "{}, {} threads, {}",
                report.machine.processor, report.machine.threads, report.machine.system
            ),
        ),
        (
            "Ceilings",
            format!(
                "products {} TFLOP/s, other arithmetic {} TFLOP/s, memory {} GB/s{launch} ({})",
                product_rates(c),
                short(c.vector_tflops),
                short(c.bandwidth_gbs),
                c.source
            ),
        ),
        (
            "Program",
            format!(
                "{}{built}, timed runs: {}, before them: {}",
                report.program, s.runs, s.warmup
            ),
        ),
    ];
    let mut out = String::from("<dl>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", Text(&value));
    }
    out + "</dl>\n"
}

/// Cells of a row; `None` is a dash.
fn row(out: &mut String, cells: &[Option<String>]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<td>{}</td>", Text(cell.as_deref().unwrap_or("–")));
    }
    out.push_str("</tr>\n");
}

fn times(report: &BenchReport) -> String {
    let mut out = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>precision</th><th>model<br>median ms</th><th>p95</th><th>min</th>\
         <th>decode</th><th>upload</th><th>download</th><th>end to end</th><th>points·frames<br>a second</th>\
         <th>host<br>memory</th><th>device<br>memory</th><th>device<br>busy</th><th>launches</th><th>floor<br>ms</th>\
         <th>model<br>÷ floor</th></tr></thead><tbody>\n",
    );
    let median = |t: &Timing| short(t.median_ms);
    for p in &report.precisions {
        let floor = floor_ms(&layers(report, p)).filter(|&ms| ms > 0.0);
        row(
            &mut out,
            &[
                Some(p.dtype.clone()),
                Some(median(&p.model)),
                Some(short(p.model.p95_ms)),
                Some(short(p.model.min_ms)),
                Some(median(&p.decode)),
                p.upload.as_ref().map(median),
                p.download.as_ref().map(median),
                Some(median(&p.end_to_end)),
                Some(format!("{:.0}", p.points_frames_per_second)),
                p.peak_host_bytes.map(size),
                p.peak_device_bytes.map(size),
                p.device_busy.map(|b| format!("{:.0} %", 100.0 * b)),
                p.launches.map(|n| n.to_string()),
                floor.map(short),
                floor.map(|ms| short(p.model.median_ms / ms)),
            ],
        );
    }
    out + "</tbody></table></div>\n"
}

/// The parts of the model that occur, in the order of a pass.
fn legend(report: &BenchReport) -> String {
    let mut stages: Vec<Stage> = Vec::new();
    for layer in report.precisions.iter().flat_map(|p| &p.layers) {
        let stage = Stage::of(&layer.name);
        if !stages.contains(&stage) {
            stages.push(stage);
        }
    }
    stages.sort();
    let mut out = String::from("<ul class=\"legend\">");
    for stage in stages {
        let _ = write!(
            out,
            "<li><span class=\"dot\" style=\"background:var({})\"></span>{}</li>",
            color_of(stage),
            stage.label()
        );
    }
    out + "</ul>\n"
}

/// A cell that sorts by its whole value; unknown ones come last.
fn number(out: &mut String, value: Option<f64>, class: &str) {
    let text = value.map_or_else(|| "–".to_owned(), short);
    let value = value.unwrap_or(-1.0);
    let _ = write!(out, "<td{class} data-value=\"{value:.6e}\">{text}</td>");
}

fn layer_table(precision: &PrecisionRecord, views: &[LayerView<'_>]) -> String {
    let columns = [
        "layer",
        "calls",
        "ms",
        "share",
        "GFLOP",
        "MB",
        "TFLOP/s",
        "GB/s",
        "bound by",
        "floor ms",
        "÷ floor",
        "Tensor Cores",
    ];
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for name in columns {
        let _ = write!(out, "<th aria-sort=\"none\" tabindex=\"0\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    let top = views
        .iter()
        .map(|v| v.share)
        .fold(f64::MIN_POSITIVE, f64::max);
    for view in views {
        let layer = view.record;
        let _ = write!(
            out,
            "<tr><td><span class=\"dot\" style=\"background:var({color})\"></span>{}</td><td>{}</td>\
             <td data-value=\"{ms:.6e}\">{}</td><td data-value=\"{ms:.6e}\"><span class=\"bar\" \
             style=\"width:{:.2}rem;background:var({color})\"></span>{:.1} %</td>",
            Text(&layer.name),
            layer.calls,
            short(layer.median_ms),
            5.0 * view.share / top,
            100.0 * view.share,
            color = color(&layer.name),
            ms = layer.median_ms,
        );
        number(&mut out, Some(layer.cost.flops() as f64 / 1e9), "");
        number(&mut out, Some(view.bytes as f64 / 1e6), "");
        number(&mut out, Some(view.tflops), "");
        number(&mut out, Some(view.gbs), "");
        let bound = view
            .floor
            .map_or_else(|| "–".to_owned(), |f| f.bound.to_string());
        let far = view.ratio.is_some_and(|r| r > FAR) && view.share > FAR_SHARE;
        let _ = write!(out, "<td>{bound}</td>");
        number(&mut out, view.floor.map(|f| f.ms()), "");
        number(
            &mut out,
            view.ratio,
            if far { " class=\"far\"" } else { "" },
        );
        let _ = writeln!(out, "<td>{}</td></tr>", shapes(view.shapes));
    }
    let _ = writeln!(
        out,
        "</tbody></table></div>\n<p class=\"soft\">The layers add up to {} ms, {:.1} % of the profiled pass of {} ms; a \
         plain pass takes {} ms. A layer far above its floor that takes a share worth having is marked.</p>",
        short(precision.layers_ms()),
        100.0 * precision.layers_ms() / precision.profiled.median_ms.max(f64::MIN_POSITIVE),
        short(precision.profiled.median_ms),
        short(precision.model.median_ms),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::report;

    #[test]
    fn the_page_holds_everything_and_needs_nothing() {
        let page = page(&report());
        for p in &report().precisions {
            assert!(page.contains(&format!("<section data-dtype=\"{}\">", p.dtype)));
        }
        assert_eq!(page.matches(">encoder.stem</td>").count(), 2);
        assert!(page.contains("A &lt;device&gt; &amp; more") && !page.contains("<device>"));
        // Nothing is fetched: no address but the name of SVG's own elements, which inline needs none.
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for tag in ["section", "table", "svg", "script", "figure", "tr", "td"] {
            let open = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
