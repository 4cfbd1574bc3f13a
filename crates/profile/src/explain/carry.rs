//! The arithmetic of carrying a report over: floors, predictions, memory.

use std::collections::BTreeMap;

use super::{InPrecision, Memory, OfLayer, OfStage, OnDevice, Stage, verdict};
use crate::Cost;
use crate::devices::{DTYPES, Device, Reachable};
use crate::record::{BenchReport, Ceilings, LayerRecord, PrecisionRecord, value_size};
use crate::roofline::{Bound, Floor, Rates};

/// A device with the two roofs that layers are held against.
pub(super) struct Roofs {
    device: Device,
    /// As the datasheet promises, or as measured where there is no datasheet.
    sheet: Ceilings,
    /// As good code reaches.
    reachable: Ceilings,
    own: bool,
}

impl Roofs {
    pub(super) fn of(device: &Device) -> Self {
        Self {
            device: device.clone(),
            sheet: device.ceilings(),
            reachable: device.reachable_ceilings(),
            own: false,
        }
    }
}

/// The device that the report was made on. Its reachable roofs are the ones that the report measured.
pub(super) fn own_device(report: &BenchReport) -> Roofs {
    let measured = report.ceilings.clone();
    let listed = (report.device.kind == "cuda")
        .then(|| Device::named(&report.device.name))
        .flatten();
    match listed {
        Some(device) => Roofs {
            sheet: device.ceilings(),
            reachable: measured,
            device,
            own: true,
        },
        None => Roofs {
            device: unlisted(report),
            sheet: measured.clone(),
            reachable: measured,
            own: true,
        },
    }
}

/// A device that is not in the table, by what the report says about it.
fn unlisted(report: &BenchReport) -> Device {
    let record = &report.device;
    let is_cpu = record.kind == "cpu";
    let memory = if is_cpu {
        report.machine.memory_bytes
    } else {
        record.memory_bytes
    };
    Device {
        name: if is_cpu { "cpu" } else { "this-device" }.to_owned(),
        title: record.name.clone(),
        compute_capability: record.compute_capability.clone(),
        memory_gib: memory.unwrap_or(0) as f64 / f64::from(1 << 30),
        bandwidth_gbs: report.ceilings.bandwidth_gbs,
        l2_mib: record
            .l2_bytes
            .map(|bytes| bytes as f64 / f64::from(1 << 20)),
        clock_mhz: None,
        vector_tflops: report.ceilings.vector_tflops,
        tflops: report.ceilings.tflops.clone(),
        launch_us: report.ceilings.launch_us.unwrap_or(0.0),
        reachable: Reachable {
            bandwidth: 1.0,
            vector: 1.0,
            f32: 1.0,
            tensor: 1.0,
            source: "its rates are measured ones".to_owned(),
        },
        sources: vec![format!("measured: {}", report.ceilings.source)],
        notes: Vec::new(),
    }
}

pub(super) fn on_device(report: &BenchReport, roofs: &Roofs) -> OnDevice {
    let Roofs {
        device, sheet, own, ..
    } = roofs;
    let no_prediction = why_not_predicted(report, roofs);
    let predicts = no_prediction.is_none();
    let precisions: Vec<_> = DTYPES
        .into_iter()
        .filter(|&dtype| device.offers(dtype))
        .filter_map(|dtype| in_precision(report, roofs, dtype, predicts))
        .collect();
    let pick = verdict::pick(&precisions);
    let mut on = OnDevice {
        device: device.clone(),
        own: *own,
        floors_from: sheet.source.clone(),
        pick,
        lacks: device.lacks(),
        precisions,
        no_prediction,
        sentences: Vec::new(),
    };
    on.sentences = verdict::sentences(&on, report);
    on
}

fn why_not_predicted(report: &BenchReport, roofs: &Roofs) -> Option<String> {
    let title = &roofs.device.title;
    if roofs.own {
        None
    } else if report.device.kind != "cuda" {
        Some(
            "the report was made on a CPU, whose code is not the one that runs on a GPU".to_owned(),
        )
    } else if !roofs.device.runs_track() {
        Some(format!("track has no device code for {title}"))
    } else {
        None
    }
}

/// The record whose costs stand for a precision: its own, else f32's, else the first that has layers.
pub(super) fn record_for<'a>(report: &'a BenchReport, dtype: &str) -> Option<&'a PrecisionRecord> {
    let with_layers = || report.precisions.iter().filter(|p| !p.layers.is_empty());
    let of = |dtype: &str| with_layers().find(|p| p.dtype == dtype);
    of(dtype)
        .or_else(|| of("f32"))
        .or_else(|| with_layers().next())
}

fn in_precision(
    report: &BenchReport,
    roofs: &Roofs,
    dtype: &str,
    predicts: bool,
) -> Option<InPrecision> {
    let record = record_for(report, dtype)?;
    let measured = record.dtype == dtype;
    // Layers are timed in profiled runs, which may be slower than plain ones; predictions are of plain ones.
    let profiled = record.profiled.median_ms;
    let plain_share = if profiled > 0.0 {
        record.model.median_ms / profiled
    } else {
        1.0
    };
    let sheet = Rates::new(&roofs.sheet, dtype)?;
    let reached = Rates::new(&roofs.reachable, dtype).unwrap_or(sheet);
    let here = Rates::new(&report.ceilings, dtype).filter(|_| measured && predicts && !roofs.own);
    let mut layers = Vec::with_capacity(record.layers.len());
    for layer in &record.layers {
        let at_sheet = sheet.floor(&layer.cost, layer.calls);
        let reachable = reached.floor(&layer.cost, layer.calls);
        let here = here.map(|rates| rates.floor(&layer.cost, layer.calls));
        let scale = here
            .filter(|here| here.seconds > 0.0)
            .map(|here| reachable.seconds / here.seconds);
        layers.push(of_layer(layer, &at_sheet, &reachable).with(
            (measured && roofs.own).then_some(layer.median_ms),
            scale.map(|scale| layer.median_ms * scale * plain_share),
        ));
    }
    let floor_ms = layers.iter().map(|l| l.floor_ms).sum();
    let predicted: Option<Vec<f64>> = layers.iter().map(|l| l.predicted_ms).collect();
    Some(InPrecision {
        dtype: dtype.to_owned(),
        floor_ms,
        reachable_ms: layers.iter().map(|l| l.reachable_ms).sum(),
        measured_ms: (measured && roofs.own).then_some(record.model.median_ms),
        predicted_ms: predicted.map(|times| times.iter().sum()),
        memory: memory(report, &roofs.device, dtype),
        stages: stages(&layers, floor_ms),
        layers,
    })
}

fn of_layer(layer: &LayerRecord, at_sheet: &Floor, reachable: &Floor) -> OfLayer {
    OfLayer {
        name: layer.name.clone(),
        stage: Stage::of(&layer.name),
        calls: layer.calls,
        cost: layer.cost,
        floor_ms: at_sheet.ms(),
        bound: at_sheet.bound,
        reachable_ms: reachable.ms(),
        measured_ms: None,
        predicted_ms: None,
    }
}

impl OfLayer {
    fn with(mut self, measured_ms: Option<f64>, predicted_ms: Option<f64>) -> Self {
        self.measured_ms = measured_ms;
        self.predicted_ms = predicted_ms;
        self
    }
}

fn stages(layers: &[OfLayer], total: f64) -> Vec<OfStage> {
    let mut by_stage: BTreeMap<Stage, Vec<&OfLayer>> = BTreeMap::new();
    for layer in layers {
        by_stage.entry(layer.stage).or_default().push(layer);
    }
    let mut stages: Vec<_> = by_stage
        .into_iter()
        .map(|(stage, layers)| {
            let floor_ms: f64 = layers.iter().map(|l| l.floor_ms).sum();
            let sum = |time: fn(&OfLayer) -> Option<f64>| {
                let times: Option<Vec<f64>> = layers.iter().map(|l| time(l)).collect();
                times.map(|times| times.iter().sum())
            };
            OfStage {
                stage,
                floor_ms,
                reachable_ms: layers.iter().map(|l| l.reachable_ms).sum(),
                share: if total > 0.0 { floor_ms / total } else { 0.0 },
                bound: most(&layers),
                measured_ms: sum(|l| l.measured_ms),
                predicted_ms: sum(|l| l.predicted_ms),
                cost: layers.iter().fold(Cost::default(), |sum, l| sum + l.cost),
            }
        })
        .collect();
    stages.sort_by(|a, b| b.floor_ms.total_cmp(&a.floor_ms));
    stages
}

/// What most of the layers' time is bound by.
fn most(layers: &[&OfLayer]) -> Bound {
    let of = |bound: Bound| -> f64 {
        let bound_so = layers.iter().filter(|l| l.bound == bound);
        bound_so.map(|l| l.floor_ms).sum()
    };
    let mut most = layers.first().map_or(Bound::Bandwidth, |l| l.bound);
    for layer in layers {
        if of(layer.bound) > of(most) {
            most = layer.bound;
        }
    }
    most
}

/// The peak of device memory in a precision: measured in it, scaled from another one, or the host's peak.
fn memory(report: &BenchReport, device: &Device, dtype: &str) -> Option<Memory> {
    let peaks = || {
        let peak = |p: &PrecisionRecord| Some((p.dtype.clone(), p.peak_device_bytes?));
        report.precisions.iter().filter_map(peak)
    };
    let weight = |dtype: &str| value_size(dtype).unwrap_or(4);
    let scaled = |from: &str, bytes: u64| bytes / weight(from) * weight(dtype);
    let exact = peaks().find(|(d, _)| d == dtype);
    let (bytes, source) = if let Some((_, bytes)) = exact {
        (bytes, "measured by the report".to_owned())
    } else if let Some((from, bytes)) = peaks().find(|(d, _)| d == "f32").or_else(|| peaks().next())
    {
        (
            scaled(&from, bytes),
            format!("scaled from the report's {from}"),
        )
    } else {
        let on_host = |p: &PrecisionRecord| Some((p.dtype.clone(), p.peak_host_bytes?));
        let (from, bytes) = report.precisions.iter().find_map(on_host)?;
        let source = format!("estimated from the host's peak in {from}, the program included");
        (scaled(&from, bytes), source)
    };
    Some(Memory {
        bytes,
        source,
        fits: matches!(device.usable_memory(), usable if usable == 0 || bytes <= usable),
    })
}
