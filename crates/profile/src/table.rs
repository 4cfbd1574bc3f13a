//! A benchmark's report as people read it on a terminal.

use std::fmt::Write;

use crate::explain::words::{columns, size};
use crate::record::{BenchReport, Ceilings, PrecisionRecord, Timing};
use crate::view::{LayerView, Shapes, floor_ms, layers, short};

/// The whole report: what ran where, each precision's times, each precision's layers.
pub fn text(report: &BenchReport) -> String {
    let mut out = head(report);
    out.push('\n');
    out.push_str(&columns(&times(report)));
    out.push('\n');
    out.push_str(&columns(&resources(report)));
    for precision in &report.precisions {
        let views = layers(report, precision);
        let _ = writeln!(out, "\n{} layers", precision.dtype);
        out.push_str(&columns(&layer_rows(&views)));
        out.push_str(&sums(precision, &views));
    }
    out
}

/// What ran where, in a few lines.
pub fn head(report: &BenchReport) -> String {
    let (machine, settings) = (&report.machine, &report.settings);
    let commit = report.commit.as_ref();
    let built = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    let mut out = format!(
        "{}{built}, {}, {}\n{}, {} threads, {}\n",
        report.program,
        settings.model,
        settings.weights,
        machine.processor,
        machine.threads,
        machine.system,
    );
    out.push_str(&device(report));
    let c = &report.ceilings;
    let launch = c
        .launch_us
        .map_or_else(String::new, |us| format!(", {} µs a launch", short(us)));
    let _ = writeln!(
        out,
        "ceilings ({}): products {} TFLOP/s, other arithmetic {} TFLOP/s, memory {} GB/s{launch}",
        c.source,
        product_rates(c),
        short(c.vector_tflops),
        short(c.bandwidth_gbs),
    );
    let batch = match settings.batch {
        1 => String::new(),
        n => format!(", {n} clips a run"),
    };
    let _ = writeln!(
        out,
        "{}: {} frames, fed in at {}×{}, {} points{batch}; timed runs: {}, before them: {}",
        settings.clip,
        settings.frames,
        settings.width,
        settings.height,
        settings.points,
        settings.runs,
        settings.warmup,
    );
    out
}

/// The rates of products that are known, the most exact precision first.
pub(crate) fn product_rates(ceilings: &Ceilings) -> String {
    let rates: Vec<_> = ["f32", "tf32", "f16", "bf16"]
        .into_iter()
        .filter_map(|dtype| Some(format!("{dtype} {}", short(*ceilings.tflops.get(dtype)?))))
        .collect();
    rates.join(", ")
}

fn device(report: &BenchReport) -> String {
    let d = &report.device;
    if d.kind == "cpu" {
        return String::new();
    }
    let facts = [
        d.compute_capability
            .as_ref()
            .map(|c| format!("compute capability {c}")),
        d.code.as_ref().map(|c| format!("code {c}")),
        d.driver.as_ref().map(|v| format!("driver {v}")),
        d.multiprocessors.map(|n| format!("{n} multiprocessors")),
        d.clock_mhz.map(|f| format!("{f} MHz")),
        d.memory_bytes.map(size),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    format!("{}: {}\n", d.name, facts.join(", "))
}

fn median(timing: &Timing) -> String {
    short(timing.median_ms)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// Times of every precision.
fn times(report: &BenchReport) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "ms",
        "model",
        "p95",
        "min",
        "profiled",
        "decode",
        "upload",
        "download",
        "end to end",
        "p95",
        "min",
        "points·frames/s",
    ])];
    for p in &report.precisions {
        rows.push(vec![
            p.dtype.clone(),
            median(&p.model),
            short(p.model.p95_ms),
            short(p.model.min_ms),
            median(&p.profiled),
            median(&p.decode),
            or_dash(p.upload.as_ref().map(median)),
            or_dash(p.download.as_ref().map(median)),
            median(&p.end_to_end),
            short(p.end_to_end.p95_ms),
            short(p.end_to_end.min_ms),
            format!("{:.0}", p.points_frames_per_second),
        ]);
    }
    rows
}

/// What every precision held and launched.
fn resources(report: &BenchReport) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
        "",
        "host memory",
        "device memory",
        "device busy",
        "launches",
        "floor ms",
        "model ÷ floor",
    ])];
    for p in &report.precisions {
        let floor = floor_ms(&layers(report, p)).filter(|&ms| ms > 0.0);
        rows.push(vec![
            p.dtype.clone(),
            or_dash(p.peak_host_bytes.map(size)),
            or_dash(p.peak_device_bytes.map(size)),
            or_dash(p.device_busy.map(|b| format!("{:.0} %", 100.0 * b))),
            or_dash(p.launches.map(|n| n.to_string())),
            or_dash(floor.map(short)),
            or_dash(floor.map(|ms| short(p.model.median_ms / ms))),
        ]);
    }
    rows
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn layer_rows(views: &[LayerView<'_>]) -> Vec<Vec<String>> {
    let mut rows = vec![header(&[
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
    ])];
    for view in views {
        let layer = view.record;
        rows.push(vec![
            layer.name.clone(),
            layer.calls.to_string(),
            short(layer.median_ms),
            format!("{:.1} %", 100.0 * view.share),
            short(layer.cost.flops() as f64 / 1e9),
            short(view.bytes as f64 / 1e6),
            short(view.tflops),
            short(view.gbs),
            or_dash(view.floor.map(|f| f.bound.to_string())),
            or_dash(view.floor.map(|f| short(f.ms()))),
            or_dash(view.ratio.map(short)),
            shapes(view.shapes),
        ]);
    }
    rows
}

/// Whether products suit Tensor Cores, in a word.
pub(crate) fn shapes(shapes: Shapes) -> String {
    match shapes {
        Shapes::None => "–".to_owned(),
        Shapes::Suit => "yes".to_owned(),
        Shapes::Padded(share) if share > 0.995 => "padded".to_owned(),
        Shapes::Padded(share) => format!("padded {:.0} %", 100.0 * share),
    }
}

/// How the layers' sum compares with whole passes.
fn sums(precision: &PrecisionRecord, views: &[LayerView<'_>]) -> String {
    let sum = precision.layers_ms();
    let profiled = precision.profiled.median_ms;
    let floor = floor_ms(views).map_or_else(String::new, |ms| {
        format!(", their floors to {} ms", short(ms))
    });
    format!(
        "  The layers add up to {} ms, {:.1} % of the profiled pass of {} ms{floor}; a plain pass takes {} ms.\n",
        short(sum),
        100.0 * sum / profiled.max(f64::MIN_POSITIVE),
        short(profiled),
        short(precision.model.median_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::report;

    #[test]
    fn the_table_says_what_was_measured() {
        let text = text(&report());
        let line = |start: &str| {
            let mut lines = text.lines().map(str::trim);
            lines.find(|l| l.starts_with(start)).unwrap().to_owned()
        };
        let words =
            |line: String| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let stem = words(line("encoder.stem"));
        assert_eq!(stem[1..4], ["2", "6.00", "75.0"]);
        assert!(stem.contains(&"products".to_owned()) && stem.contains(&"padded".to_owned()));
        assert_eq!(words(line("f32"))[1..4], ["8.50", "9.00", "8.00"]);
        assert!(
            text.contains("98.8 % of the profiled pass of 8.10 ms"),
            "{text}"
        );
        assert!(text.contains("A <device> & more: compute capability 9.0, code sm_90"));
        assert!(text.contains("1.5 GiB") && text.contains("75 %"));
        // bf16 has no ceiling here, so nothing is said about its floor.
        assert_eq!(words(line("bf16   4")).last().unwrap(), "1234");
    }
}
