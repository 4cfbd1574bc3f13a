//! A report carried over to other devices: what each layer costs there at least, in each precision, what it
//! would take with this engine, and what to change first.
//!
//! Two kinds of numbers come out, and they are kept apart. A **floor** is arithmetic: the layer's operations
//! and bytes over the datasheet's rates ([`crate::roofline`]); only another algorithm, such as Winograd's for
//! convolutions, is faster. A **prediction** is a guess: this engine's measured time, scaled by the ratio of
//! the floors at the rates that good code reaches.
//!
//! Sentences are made from these numbers. A layer's name only decides which group it is counted in.

mod carry;
mod causes;
mod compare;
mod compare_text;
mod stage;
mod text;
mod verdict;
pub(crate) mod words;

use serde::Serialize;

use crate::Cost;
use crate::devices::Device;
use crate::record::{BenchReport, Settings};
use crate::roofline::Bound;

pub use causes::Cause;
pub use compare::{AtBest, Comparison, Mix, Observation, PUBLIC, Pair, RateRatio, TimesOf};
pub use stage::Stage;
pub use text::device_table;

/// The name of the form that [`Explanation`] serializes to.
pub const SCHEMA: &str = "track-explain/1";

/// What `track explain` has to say.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The report that everything follows from.
    pub made_from: Origin,
    /// The report's own device first, then the others.
    pub devices: Vec<OnDevice>,
    /// Observed times set against what the hardware explains.
    pub comparison: Option<Comparison>,
}

/// The report in short.
#[derive(Debug, Clone, Serialize)]
pub struct Origin {
    /// The program that made it.
    pub program: String,
    /// Where it was made, as the device calls itself.
    pub device: String,
    /// "cpu" or "cuda".
    pub kind: String,
    /// What was tracked.
    pub settings: Settings,
    /// Measured precisions with the median time of the model, in milliseconds.
    pub measured_ms: Vec<(String, f64)>,
}

/// One device.
#[derive(Debug, Clone, Serialize)]
pub struct OnDevice {
    /// Its figures.
    pub device: Device,
    /// Whether the report was made on it.
    pub own: bool,
    /// What the floors were computed with: a name of the device table, or "measured".
    pub floors_from: String,
    /// Precisions that it offers.
    pub precisions: Vec<InPrecision>,
    /// Precisions that it lacks.
    pub lacks: Vec<&'static str>,
    /// The precision to pick.
    pub pick: String,
    /// Why times are not predicted, where they are not.
    pub no_prediction: Option<String>,
    /// What to know and what to change first, most important first.
    pub sentences: Vec<String>,
}

/// A device in one precision.
#[derive(Debug, Clone, Serialize)]
pub struct InPrecision {
    /// "f32", "tf32", "f16" or "bf16".
    pub dtype: String,
    /// Sum of the layers' floors at the datasheet's rates, in milliseconds.
    pub floor_ms: f64,
    /// The same at the rates that good code reaches.
    pub reachable_ms: f64,
    /// What the model took, on the report's own device.
    pub measured_ms: Option<f64>,
    /// What this engine would take: a prediction.
    pub predicted_ms: Option<f64>,
    /// The memory that it takes, where that can be told.
    pub memory: Option<Memory>,
    /// Layers by stage.
    pub stages: Vec<OfStage>,
    /// Every layer.
    pub layers: Vec<OfLayer>,
}

/// Memory needed against memory there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    /// Needed at the peak.
    pub bytes: u64,
    /// Where the figure comes from.
    pub source: String,
    /// Whether it fits what a program can use there.
    pub fits: bool,
}

/// A layer on a device in a precision; times are for all its calls of one pass.
#[derive(Debug, Clone, Serialize)]
pub struct OfLayer {
    /// Its name.
    pub name: String,
    /// Where it is counted.
    pub stage: Stage,
    /// Calls of one pass.
    pub calls: u64,
    /// What it spends.
    pub cost: Cost,
    /// At the datasheet's rates, in milliseconds.
    pub floor_ms: f64,
    /// What the floor is bound by.
    pub bound: Bound,
    /// At the rates that good code reaches, in milliseconds.
    pub reachable_ms: f64,
    /// Measured, on the report's own device.
    pub measured_ms: Option<f64>,
    /// Predicted for this engine.
    pub predicted_ms: Option<f64>,
}

/// The layers of a stage together.
#[derive(Debug, Clone, Serialize)]
pub struct OfStage {
    /// Which.
    pub stage: Stage,
    /// Sum of the floors at the datasheet's rates, in milliseconds.
    pub floor_ms: f64,
    /// The same at the rates that good code reaches.
    pub reachable_ms: f64,
    /// Its part of the device's floor, 0 to 1.
    pub share: f64,
    /// What most of its floor is bound by.
    pub bound: Bound,
    /// Sum of the measured times.
    pub measured_ms: Option<f64>,
    /// Sum of the predicted times.
    pub predicted_ms: Option<f64>,
    /// What it spends.
    pub cost: Cost,
}

/// Why a report cannot be explained. One sentence each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFault(String);

impl std::fmt::Display for ReportFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReportFault {}

/// Carries `report` over to `others`.
///
/// `observed` are somebody's times for the same work in f32, by device. Without any, and with a T4 and an
/// A100 among the devices, the public observation [`PUBLIC`] is looked into.
///
/// # Errors
/// A sentence where the report has another schema, no layers, or numbers that no measurement gives.
pub fn explain(
    report: &BenchReport,
    others: &[Device],
    observed: &[Observation],
) -> Result<Explanation, ReportFault> {
    check(report)?;
    let own = carry::own_device(report);
    let mut devices = vec![carry::on_device(report, &own)];
    for device in others {
        if devices.iter().all(|d| d.device.name != device.name) {
            let foreign = carry::Roofs::of(device);
            devices.push(carry::on_device(report, &foreign));
        }
    }
    let comparison = compare::compare(report, &devices, observed);
    Ok(Explanation {
        schema: SCHEMA,
        made_from: Origin {
            program: report.program.clone(),
            device: report.device.name.clone(),
            kind: report.device.kind.clone(),
            settings: report.settings.clone(),
            measured_ms: report
                .precisions
                .iter()
                .map(|record| (record.dtype.clone(), record.model.median_ms))
                .collect(),
        },
        devices,
        comparison,
    })
}

fn check(report: &BenchReport) -> Result<(), ReportFault> {
    let fault = |text: String| Err(ReportFault(text));
    let expected = crate::record::SCHEMA;
    if report.schema != expected {
        let found = &report.schema;
        return fault(format!(
            "it is of the form {found:?}, and {expected:?} was expected"
        ));
    }
    let Some(first) = report.precisions.first() else {
        return fault("it holds no precision".to_owned());
    };
    if report.precisions.iter().all(|p| p.layers.is_empty()) {
        return fault(format!("it holds no layers in {}", first.dtype));
    }
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !positive(report.ceilings.bandwidth_gbs)
        || !positive(report.ceilings.vector_tflops)
        || !report.ceilings.tflops.values().all(|&rate| positive(rate))
        || !report.ceilings.tflops.contains_key("f32")
    {
        return fault("its ceilings lack a rate, or hold one that is not above 0".to_owned());
    }
    for record in &report.precisions {
        let times = record.layers.iter().map(|layer| layer.median_ms);
        if times
            .chain([record.model.median_ms])
            .any(|ms| !(ms.is_finite() && ms >= 0.0))
        {
            let dtype = &record.dtype;
            return fault(format!("a time of {dtype} is not a number of milliseconds"));
        }
    }
    Ok(())
}
