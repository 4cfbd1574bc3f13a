//! Benchmarks as a user runs them, in small. Nothing here depends on how long anything takes.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;

use common::{CLIP, Place, WEIGHTS};
use serde_json::Value;
use track::profile::record::BenchReport;

/// Settings of a benchmark that takes a moment.
const SMALL: [&str; 10] = [
    "bench",
    "--frames",
    "4",
    "--points",
    "4",
    "--runs",
    "1",
    "--warmup",
    "0",
    "--device=cpu",
];

/// One benchmark that several tests look at.
struct Measured {
    place: Place,
    said: String,
    report: BenchReport,
}

#[allow(clippy::unwrap_used)]
fn measured() -> &'static Measured {
    static MEASURED: OnceLock<Measured> = OnceLock::new();
    MEASURED.get_or_init(|| {
        let place = Place::new();
        let files = ["--json", "a.json", "--trace", "t.json", "--html", "p.html"];
        let said = place.ok(&[&SMALL[..], &files].concat());
        assert_eq!(place.names(), ["a.json", "p.html", "t.json"]);
        let report = serde_json::from_slice(&place.read("a.json")).unwrap();
        Measured {
            place,
            said,
            report,
        }
    })
}

#[test]
fn the_report_reads_back_and_its_sums_agree() {
    let report = &measured().report;
    assert_eq!(report.schema, "track-bench/1");
    let settings = &report.settings;
    assert_eq!(
        (settings.frames, settings.points, settings.batch),
        (4, 4, 1)
    );
    assert_eq!((settings.width, settings.height), (256, 256));
    assert!(!settings.synthetic && settings.clip.starts_with("pedestrians"));
    assert_eq!(settings.weights_sha256.len(), 64);
    assert_eq!(report.device.kind, "cpu");
    assert!(report.ceilings.bandwidth_gbs > 0.0 && report.ceilings.tflops["f32"] > 0.0);
    // A CPU has f32 alone.
    assert_eq!(report.precisions.len(), 1);
    let f32 = &report.precisions[0];
    assert_eq!(f32.dtype, "f32");
    let (sum, whole) = (f32.layers_ms(), f32.profiled.median_ms);
    assert!((0.95..=1.0001).contains(&(sum / whole)), "{sum} of {whole}");
    assert_eq!(f32.model.runs_ms.len(), 1);
    assert!(f32.decode.median_ms > 0.0);
    let both = f32.decode.runs_ms[0] + f32.model.runs_ms[0];
    assert!((f32.end_to_end.runs_ms[0] - both).abs() < 1e-6);
    let rate = 16.0 / (f32.model.median_ms / 1e3);
    assert!((f32.points_frames_per_second / rate - 1.0).abs() < 1e-9);
    assert!(f32.upload.is_none() && f32.launches.is_none() && f32.device_busy.is_none());
    assert!(
        f32.layers
            .iter()
            .all(|l| l.calls > 0 && l.cost.values > 0 && l.median_ms >= 0.0)
    );
    // Four refinements of three transformer layers each.
    let qkv = f32.layers.iter().find(|l| l.name == "refine.qkv").unwrap();
    assert_eq!(qkv.calls, 12);
    assert_eq!(qkv.cost.products, 12 * 2 * 16 * 256 * 768);
}

#[test]
fn the_table_has_every_layer() {
    let Measured { said, report, .. } = measured();
    for layer in &report.precisions[0].layers {
        assert!(said.contains(&layer.name), "{}", layer.name);
    }
    for word in [
        "points·frames/s",
        "bound by",
        "÷ floor",
        "Tensor Cores",
        "GB/s",
        "of the profiled pass",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
}

#[test]
fn the_trace_nests_and_is_in_order() {
    let Measured { place, report, .. } = measured();
    let trace: Value = serde_json::from_slice(&place.read("t.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = |category: &str| -> Vec<(&str, f64, f64)> {
        let of = events.iter().filter(|e| e["cat"] == category);
        of.map(|e| {
            let (start, length) = (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
            (e["name"].as_str().unwrap(), start, start + length)
        })
        .collect()
    };
    let (passes, parts, layers) = (slices("pass"), slices("part"), slices("layer"));
    assert_eq!(passes.len(), 1);
    let calls: u64 = report.precisions[0].layers.iter().map(|l| l.calls).sum();
    assert_eq!(layers.len() as u64, calls);
    // A nanosecond of rounding.
    let inside =
        |a: &(&str, f64, f64), b: &(&str, f64, f64)| a.1 >= b.1 - 2e-3 && a.2 <= b.2 + 2e-3;
    for layer in &layers {
        let part = layer.0.split('.').next().unwrap();
        assert!(
            parts.iter().any(|p| p.0 == part && inside(layer, p)),
            "{layer:?}"
        );
    }
    assert!(parts.iter().all(|p| inside(p, &passes[0])));
    assert!(
        layers.windows(2).all(|w| w[0].2 <= w[1].1 + 2e-3),
        "layers overlap"
    );
    let names: BTreeSet<_> = layers.iter().map(|l| l.0).collect();
    let known: BTreeSet<_> = report.precisions[0]
        .layers
        .iter()
        .map(|l| l.name.as_str())
        .collect();
    assert_eq!(names, known);
}

#[test]
fn the_page_holds_every_layer_and_fetches_nothing() {
    let Measured { place, report, .. } = measured();
    let page = String::from_utf8(place.read("p.html")).unwrap();
    for layer in &report.precisions[0].layers {
        assert!(
            page.contains(&format!("{}</td>", layer.name)),
            "{}",
            layer.name
        );
    }
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
    for outside in ["http://", "https://", "src=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn kept_figures_are_drawn_and_compared_without_measuring() {
    let Measured {
        place: from, said, ..
    } = measured();
    let place = Place::new();
    place.write("a.json", from.read("a.json"));
    let again = place.ok(&[
        "bench",
        "--from",
        "a.json",
        "--against",
        "a.json",
        "--html",
        "p.html",
    ]);
    assert!(again.starts_with(said.as_str()));
    assert!(again.contains("f32: nothing changed"), "{again}");
    let rows = |page: Vec<u8>| String::from_utf8(page).unwrap().matches("<tr>").count();
    assert_eq!(rows(place.read("p.html")), rows(from.read("p.html")));

    // The same device in a quarter of the time, with other points.
    let mut report = measured().report.clone();
    report.settings.points = 5;
    for precision in &mut report.precisions {
        for ms in [
            &mut precision.model.median_ms,
            &mut precision.model.min_ms,
            &mut precision.model.p95_ms,
        ] {
            *ms /= 4.0;
        }
        precision.layers.retain(|l| l.name != "refine.qkv");
    }
    place.write("b.json", serde_json::to_vec(&report).unwrap());
    let text = place.ok(&["bench", "--from", "b.json", "--against", "a.json"]);
    assert!(
        text.contains("warning: the number of points differs: 4 before, 5 now"),
        "{text}"
    );
    let model = text
        .lines()
        .find(|l| l.trim_start().starts_with("model ") && l.contains('%'))
        .unwrap();
    assert!(model.contains("-75.0 %"), "{model}");
    let gone = text.lines().rfind(|l| l.contains("refine.qkv")).unwrap();
    assert!(gone.ends_with("gone"), "{gone}");
}

#[test]
fn other_clips_sizes_and_models_are_timed() {
    let place = Place::new();
    let small = [
        "--points=2",
        "--runs=1",
        "--warmup=0",
        "--device=cpu",
        "--json=a.json",
    ];
    let report = || -> BenchReport { serde_json::from_slice(&place.read("a.json")).unwrap() };

    place.ok(&[
        &["bench", CLIP, "--frames=2", "--batch=2", "--dtype=f32,f32"],
        &small[..],
    ]
    .concat());
    let first = report();
    assert!(first.settings.clip.contains("pedestrians") && first.settings.clip.contains("256×256"));
    assert_eq!((first.settings.batch, first.precisions.len()), (2, 1));
    // Both clips of the run.
    let stem = &first.precisions[0]
        .layers
        .iter()
        .find(|l| l.name == "encoder.stem")
        .unwrap();
    assert_eq!(stem.calls, 2);

    let model = [
        "--model=locotrack-base",
        "--synthetic",
        "--frames=1",
        "--size=64x48",
    ];
    let said = place.ok(&[&["bench"], &model[..], &small].concat());
    assert!(
        said.contains("made up") && said.contains("made-up frames"),
        "{said}"
    );
    let settings = report().settings;
    assert_eq!(settings.model, "locotrack-base");
    assert_eq!(
        (settings.weights.as_str(), settings.weights_sha256.as_str()),
        ("made up", "")
    );
    assert!(settings.synthetic);
    assert_eq!((settings.width, settings.height), (64, 48));
    assert_eq!(report().precisions[0].decode.median_ms, 0.0);
}

#[test]
fn slips_are_refused_in_a_sentence_before_anything_is_measured() {
    let place = Place::new();
    place.write("other.json", r#"{"schema": "track/1"}"#);
    place.write("text.json", "no JSON");
    let refused =
        |arguments: &[&str], code: i32| place.refused(&[&["bench"], arguments].concat(), code);
    for usage in [
        &["--frames", "0"][..],
        &["--points", "x"],
        &["--runs", "0"],
        &["--batch", "0"],
        &["--warmup", "-1"],
        &["--size", "64"],
        &["--size", "0x64"],
        &["--dtype", "fp16"],
        &["--device", "gpu"],
        &["--model", "raft"],
        &["--synthetic", "a.mp4"],
        &["--from", "a.json", "--runs", "3"],
        &["--from", "a.json", "--trace", "t.json"],
        &["--json", "no/such/folder.json"],
        &["--html", "."],
        &["--json", "a", "--html", "./a"],
        &["--against", "other.json", "--json", "other.json"],
    ] {
        refused(usage, 2);
    }
    let frames = refused(&["--frames=60", "--device=cpu"], 2);
    assert!(frames.contains("has 47 frames"), "{frames}");
    refused(&["missing.mp4"], 3);
    refused(&["--against", "missing.json"], 3);
    assert!(
        refused(&["--against", "other.json"], 3)
            .contains("expected a report of schema track-bench/1, found track/1")
    );
    assert!(refused(&["--from", "text.json"], 3).contains("it is no JSON"));
    refused(&["--weights", "missing.ckpt"], 4);
    refused(
        &[
            "--weights",
            WEIGHTS,
            "--model=locotrack-base",
            "--device=cpu",
        ],
        4,
    );
    let precision = refused(&["--dtype=f32,bf16", "--device=cpu"], 5);
    assert!(precision.contains("bf16 is not available"), "{precision}");
    let clip: PathBuf = CLIP.into();
    assert!(clip.is_file(), "the clip was not touched");
}
