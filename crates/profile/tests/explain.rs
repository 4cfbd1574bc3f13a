//! Explanations of a made-up report, against arithmetic by hand and texts that were read.

// A test that fails here has found what it looks for.
#![allow(clippy::unwrap_used)]

use track_profile::Cost;
use track_profile::devices::Device;
use track_profile::explain::{
    Explanation, InPrecision, Observation, OnDevice, ReportFault, device_table, explain,
};
use track_profile::record::BenchReport;
use track_profile::roofline::Bound;

/// A report with the costs of LocoTrack-base, 47 frames of 256×256, 256 points. Its times are made up.
const REPORT: &str = include_str!("data/h200.json");

fn report() -> BenchReport {
    serde_json::from_str(REPORT).unwrap()
}

/// The same as a CPU would report it: f32 alone, no device memory, ceilings of its own.
fn cpu_report() -> BenchReport {
    let mut report = report();
    report.device.kind = "cpu".to_owned();
    report.device.name = "made-up processor".to_owned();
    report.device.compute_capability = None;
    report.ceilings.tflops.retain(|dtype, _| dtype == "f32");
    report.ceilings.launch_us = None;
    report.precisions.truncate(1);
    report.precisions[0].peak_device_bytes = None;
    report.precisions[0].launches = None;
    report
}

fn device(name: &str) -> Device {
    Device::named(name).unwrap()
}

fn on(report: &BenchReport, names: &[&str]) -> Explanation {
    let devices: Vec<_> = names.iter().map(|name| device(name)).collect();
    explain(report, &devices, &[]).unwrap()
}

fn of<'a>(explanation: &'a Explanation, name: &str) -> &'a OnDevice {
    let mut devices = explanation.devices.iter();
    devices.find(|d| d.device.name == name).unwrap()
}

fn precision<'a>(on: &'a OnDevice, dtype: &str) -> &'a InPrecision {
    on.precisions.iter().find(|p| p.dtype == dtype).unwrap()
}

fn seen(device: &str, seconds: f64) -> Observation {
    let device = device.to_owned();
    Observation { device, seconds }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

/// A report whose only layer spends this.
fn one_layer(name: &str, cost: Cost, calls: u64) -> BenchReport {
    let mut report = report();
    for record in &mut report.precisions {
        record.layers.truncate(1);
        record.layers[0].name = name.to_owned();
        record.layers[0].cost = cost;
        record.layers[0].calls = calls;
        record.layers[0].median_ms = 4.0;
        record.model.median_ms = 4.0;
        record.profiled.median_ms = 4.0;
    }
    report
}

#[test]
fn the_text_of_a_report() {
    insta::assert_snapshot!(on(&report(), &["t4", "a100"]).text(false));
}

#[test]
fn the_text_of_a_cpus_report_with_every_layer() {
    insta::assert_snapshot!(on(&cpu_report(), &["t4", "mi250x-gcd"]).text(true));
}

#[test]
fn the_text_of_observed_times_that_the_hardware_explains() {
    let observed = [seen("t4", 2.0), seen("a100", 0.5)];
    let text = explain(&report(), &[device("t4"), device("a100")], &observed)
        .unwrap()
        .text(false);
    let (_, section) = text.split_once("## Observed times").unwrap();
    insta::assert_snapshot!(section);
}

#[test]
fn the_table_of_devices() {
    insta::assert_snapshot!(device_table(&Device::all()));
}

#[test]
fn floors_by_hand() {
    // 8.1 TFLOP of products on a T4 are a second in f32 and 8.1/65 of it in f16; 3.2 GB of values are 10 ms.
    let cost = Cost {
        products: 8_100_000_000_000,
        values: 800_000_000,
        ..Cost::default()
    };
    let found = on(&one_layer("encoder.group0.conv3x3", cost, 10), &["t4"]);
    let t4 = of(&found, "t4");
    close(precision(t4, "f32").floor_ms, 1000.01);
    close(precision(t4, "f16").floor_ms, 8.1 / 65.0 * 1000.0 + 0.01);
    assert_eq!(precision(t4, "f16").layers[0].bound, Bound::Products);
    // Bytes alone: 320 GB/s, half as many in f16; ten launches of 1 µs.
    let cost = Cost {
        values: 800_000_000,
        bytes: 320_000_000,
        ..Cost::default()
    };
    let found = on(&one_layer("encoder.group0.norm", cost, 10), &["t4"]);
    let t4 = of(&found, "t4");
    close(precision(t4, "f32").floor_ms, 10.0 + 1.0 + 0.01);
    close(precision(t4, "f16").floor_ms, 5.0 + 1.0 + 0.01);
    assert_eq!(precision(t4, "f16").layers[0].bound, Bound::Bandwidth);
}

#[test]
fn floors_scale_exactly_with_the_device_and_with_the_work() {
    let mut twice_as_fast = device("t4");
    twice_as_fast.name = "twice".to_owned();
    twice_as_fast.bandwidth_gbs *= 2.0;
    twice_as_fast.vector_tflops *= 2.0;
    twice_as_fast.launch_us /= 2.0;
    twice_as_fast
        .tflops
        .values_mut()
        .for_each(|rate| *rate *= 2.0);
    let found = explain(&report(), &[device("t4"), twice_as_fast], &[]).unwrap();
    let mut twice_the_work = report();
    for layer in twice_the_work
        .precisions
        .iter_mut()
        .flat_map(|p| &mut p.layers)
    {
        layer.cost = layer.cost * 2;
        layer.calls *= 2;
    }
    let more = on(&twice_the_work, &["t4"]);
    for dtype in ["f32", "f16"] {
        let once = precision(of(&found, "t4"), dtype);
        let faster = precision(of(&found, "twice"), dtype);
        close(once.floor_ms, 2.0 * faster.floor_ms);
        close(
            precision(of(&more, "t4"), dtype).floor_ms,
            2.0 * once.floor_ms,
        );
    }
}

#[test]
fn layers_and_stages_sum_to_the_total_and_floors_are_never_above_what_is_reachable() {
    let names: Vec<_> = Device::all().into_iter().map(|d| d.name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let found = on(&report(), &names);
    assert_eq!(found.devices.len(), names.len());
    for p in found.devices.iter().flat_map(|d| &d.precisions) {
        close(p.layers.iter().map(|l| l.floor_ms).sum(), p.floor_ms);
        close(p.stages.iter().map(|s| s.floor_ms).sum(), p.floor_ms);
        close(p.stages.iter().map(|s| s.share).sum(), 1.0);
        let cost: Cost = p.stages.iter().map(|s| s.cost).sum();
        assert_eq!(cost, p.layers.iter().map(|l| l.cost).sum());
        assert!(p.reachable_ms > p.floor_ms);
        if let Some(predicted) = p.predicted_ms {
            close(
                p.stages.iter().filter_map(|s| s.predicted_ms).sum(),
                predicted,
            );
        }
    }
}

#[test]
fn no_precision_is_offered_or_picked_that_a_device_lacks() {
    let found = on(&report(), &["t4", "v100", "mi250x", "a100"]);
    let dtypes = |name: &str| -> Vec<String> {
        let precisions = &of(&found, name).precisions;
        precisions.iter().map(|p| p.dtype.clone()).collect()
    };
    assert_eq!(dtypes("t4"), ["f32", "f16"]);
    assert_eq!(dtypes("v100"), ["f32", "f16"]);
    assert_eq!(dtypes("mi250x"), ["f32", "f16", "bf16"]);
    assert_eq!(dtypes("a100"), ["f32", "tf32", "f16", "bf16"]);
    for on in &found.devices {
        assert!(on.device.offers(&on.pick), "{} {}", on.device.name, on.pick);
    }
    let mut f32_only = device("t4");
    f32_only.name = "old".to_owned();
    f32_only.tflops.retain(|dtype, _| dtype == "f32");
    let found = explain(&report(), &[f32_only], &[]).unwrap();
    assert_eq!(of(&found, "old").pick, "f32");
    let said = of(&found, "old").sentences.join(" ");
    assert!(said.contains("It has f32 only"), "{said}");
}

#[test]
fn a_precision_must_win_a_twentieth_to_be_picked() {
    let mut even = device("t4");
    even.name = "even".to_owned();
    even.tflops.insert("f16".to_owned(), 8.1);
    let cost = Cost::product(1 << 20, 1024, 1024);
    let found = explain(&one_layer("refine.dense", cost, 1), &[even], &[]).unwrap();
    assert_eq!(of(&found, "even").pick, "f32");
    let said = of(&found, "even").sentences.join(" ");
    assert!(said.contains("Stay with f32"), "{said}");
}

#[test]
fn predictions_scale_what_was_measured_by_the_ratio_of_the_floors() {
    // 4 ms measured for products alone, on ceilings of 48.6 TFLOP/s; a T4 reaches 0.6 of 8.1.
    let cost = Cost::product(1 << 20, 1024, 1024);
    let mut report = one_layer("refine.dense", cost, 1);
    report.ceilings.launch_us = None;
    let mut t4 = device("t4");
    t4.launch_us = 0.0;
    let found = explain(&report, &[t4], &[]).unwrap();
    let predicted = precision(of(&found, "t4"), "f32").predicted_ms.unwrap();
    close(predicted, 4.0 * 48.6 / (8.1 * 0.6));
    // The plain run took half as long as the profiled one, and so will it there.
    report.precisions[0].profiled.median_ms = 8.0;
    let mut t4 = device("t4");
    t4.launch_us = 0.0;
    let found = explain(&report, &[t4], &[]).unwrap();
    let halved = precision(of(&found, "t4"), "f32").predicted_ms.unwrap();
    close(halved, predicted / 2.0);
}

#[test]
fn nothing_is_predicted_from_a_cpu_or_for_a_device_without_code() {
    let found = on(&report(), &["v100", "mi250x", "l4"]);
    for (name, predicts) in [("v100", false), ("mi250x", false), ("l4", true)] {
        let on = of(&found, name);
        assert_eq!(on.no_prediction.is_none(), predicts, "{name}");
        assert!(
            on.precisions
                .iter()
                .all(|p| p.predicted_ms.is_some() == predicts)
        );
    }
    let found = on(&cpu_report(), &["l4"]);
    let l4 = of(&found, "l4");
    assert!(l4.no_prediction.as_ref().unwrap().contains("CPU"));
    assert!(l4.precisions.iter().all(|p| p.predicted_ms.is_none()));
    assert_eq!(found.devices[0].device.name, "cpu");
    assert_eq!(found.devices[0].precisions.len(), 1);
}

#[test]
fn memory_is_measured_scaled_or_estimated_and_held_against_the_device() {
    let mut report = report();
    report.precisions.retain(|p| p.dtype == "f32");
    report.precisions[0].peak_device_bytes = Some(20 << 30);
    let found = on(&report, &["t4", "a100"]);
    let memory =
        |name: &str, dtype: &str| precision(of(&found, name), dtype).memory.clone().unwrap();
    assert_eq!(memory("t4", "f32").bytes, 20 << 30);
    assert!(!memory("t4", "f32").fits);
    assert_eq!(memory("t4", "f16").bytes, 10 << 30);
    assert!(
        memory("t4", "f16")
            .source
            .contains("scaled from the report's f32")
    );
    assert!(memory("t4", "f16").fits && memory("a100", "f32").fits);
    let t4 = of(&found, "t4").sentences.join(" ");
    assert!(t4.contains("f32 does not fit the 14.7 GiB"), "{t4}");
    let found = on(&cpu_report(), &["t4"]);
    let memory = precision(of(&found, "t4"), "f16").memory.clone().unwrap();
    assert_eq!(memory.bytes, 450 << 20);
    assert!(memory.source.contains("estimated from the host"));
}

#[test]
fn a_precision_that_does_not_fit_is_not_picked() {
    let mut report = report();
    for record in &mut report.precisions {
        let big = record.dtype == "f16";
        record.peak_device_bytes = Some(if big { 60 << 30 } else { 1 << 30 });
    }
    let found = on(&report, &["a100"]);
    assert_eq!(of(&found, "a100").pick, "bf16");
}

#[test]
fn the_sentences_follow_the_numbers() {
    // From a CPU nothing is predicted, so that floors decide.
    let said = |report: &BenchReport| {
        let mut report = report.clone();
        report.device.kind = "cpu".to_owned();
        let found = on(&report, &["t4"]);
        of(&found, "t4").sentences.join("\n")
    };
    // Products that are wide: Tensor Cores at 65 against 8.1.
    let wide = said(&one_layer(
        "encoder.group1.conv3x3",
        Cost::product(1 << 22, 256, 2304),
        1,
    ));
    assert!(
        wide.contains("100 % of the floor in f32 is the encoder's convolutions, bound by products")
    );
    assert!(
        wide.contains("65 against 8.1 TFLOP/s: 8.0 times the rate"),
        "{wide}"
    );
    assert!(!wide.contains("no multiple of 8"), "{wide}");
    // The same, narrow.
    let narrow = said(&one_layer(
        "refine.correlation",
        Cost::product(1 << 24, 49, 128),
        1,
    ));
    assert!(
        narrow.contains("the local 4D correlation (100 % of its products)"),
        "{narrow}"
    );
    // Traffic alone: f16 halves it.
    let moved = said(&one_layer(
        "encoder.group1.norm",
        Cost::elementwise(1 << 30, 4),
        1,
    ));
    assert!(
        moved.contains("bound by bandwidth; f16 moves fewer bytes: 2.0 times less time"),
        "{moved}"
    );
    // Bytes that no precision changes, and arithmetic outside products.
    let bytes = Cost {
        bytes: 1 << 34,
        ..Cost::default()
    };
    let fixed = said(&one_layer("initial.cost_volume", bytes, 1));
    assert!(fixed.contains("Stay with f32"), "{fixed}");
    let sums = Cost {
        other: 1 << 44,
        ..Cost::default()
    };
    let sums = said(&one_layer("initial.soft_argmax", sums, 1));
    assert!(
        sums.contains("bound by arithmetic outside products"),
        "{sums}"
    );
    // Nothing but calls.
    let calls = said(&one_layer("refine.motion", Cost::elementwise(8, 1), 5000));
    assert!(
        calls.contains("refine.motion (5,000 calls, 100 % of the floor"),
        "{calls}"
    );
}

#[test]
fn hardware_explains_what_its_ratios_explain() {
    let cost = Cost::product(1 << 22, 256, 2304);
    let report = one_layer("encoder.group1.conv3x3", cost, 0);
    let devices = [device("t4"), device("a100")];
    let found = explain(&report, &devices, &[seen("t4", 85.0), seen("a100", 0.5)]).unwrap();
    let comparison = found.comparison.unwrap();
    assert!(!comparison.public);
    let pair = comparison.pair.unwrap();
    assert_eq!((pair.slow.as_str(), pair.fast.as_str()), ("t4", "a100"));
    close(pair.ratio, 170.0);
    let ratios: Vec<_> = pair.mixes.iter().map(|m| m.ratio).collect();
    close(ratios[0], 19.5 / 8.1);
    // A convolution, so tf32 on the A100 both by PyTorch's defaults and everywhere.
    close(ratios[1], 156.0 / 8.1);
    close(ratios[2], 156.0 / 8.1);
    close(pair.most, 156.0 / 8.1);
    let reachable = 156.0 * (386.0 / 494.7) / (8.1 * 0.6);
    close(pair.most_reachable, reachable);
    close(pair.left, 170.0 / reachable);
    assert!(pair.causes.len() >= 4);
    // 47 × 256 tokens, 18 convolutions, 4 refinements, 220 ms / 12,032 each.
    close(pair.causes[0].seconds.unwrap(), 18.0 * 4.0 * 0.220);
    let linear = one_layer("refine.dense", cost, 0);
    let found = explain(&linear, &devices, &[]).unwrap().comparison.unwrap();
    assert!(found.public);
    let ratios: Vec<_> = found.pair.unwrap().mixes.iter().map(|m| m.ratio).collect();
    close(ratios[1], 19.5 / 8.1);
    close(ratios[2], 156.0 / 8.1);
}

#[test]
fn what_the_hardware_explains_needs_no_other_cause() {
    let devices = [device("t4"), device("a100")];
    let observed = [seen("a100", 0.5), seen("t4", 2.0)];
    let found = explain(&report(), &devices, &observed).unwrap();
    let pair = found.comparison.unwrap().pair.unwrap();
    assert!(pair.causes.is_empty() && pair.left < 1.0);
    // One time alone is held against its floor.
    let found = explain(&report(), &devices, &[seen("t4", 1.0)]).unwrap();
    let comparison = found.comparison.unwrap();
    assert!(comparison.pair.is_none());
    let floor = comparison.observed[0].floor_ms;
    close(comparison.observed[0].over_floor, 1000.0 / floor);
    // Neither T4 nor A100, nothing observed: nothing to compare.
    assert!(on(&report(), &["l4", "a100"]).comparison.is_none());
}

#[test]
fn lines_are_no_longer_than_a_terminal() {
    let text = on(&report(), &["t4", "l4", "a100", "mi250x"]).text(true);
    for line in text.lines().chain(device_table(&Device::all()).lines()) {
        assert!(line.chars().count() <= 120, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn reports_that_make_no_sense_are_refused() {
    let fault = |change: fn(&mut BenchReport)| -> ReportFault {
        let mut report = report();
        change(&mut report);
        explain(&report, &[device("t4")], &[]).unwrap_err()
    };
    assert!(
        fault(|r| r.schema = "track/1".into())
            .to_string()
            .contains("track/1")
    );
    assert!(
        fault(|r| r.precisions.clear())
            .to_string()
            .contains("no precision")
    );
    let empty = fault(|r| r.precisions.iter_mut().for_each(|p| p.layers.clear()));
    assert!(empty.to_string().contains("no layers"));
    assert!(
        fault(|r| r.ceilings.bandwidth_gbs = 0.0)
            .to_string()
            .contains("ceilings")
    );
    assert!(
        fault(|r| r.ceilings.tflops.clear())
            .to_string()
            .contains("ceilings")
    );
    let negative = fault(|r| r.precisions[1].layers[0].median_ms = -1.0);
    assert!(negative.to_string().contains("tf32"));
    assert!(
        fault(|r| r.precisions[0].model.median_ms = f64::NAN)
            .to_string()
            .contains("f32")
    );
}

#[test]
fn the_device_of_the_manual_is_one() {
    let manual = include_str!("../../../docs/explain.md");
    let (_, block) = manual.split_once("```json\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let device: Device = serde_json::from_str(block).unwrap();
    device.check().unwrap();
    assert!(device.runs_track());
}
