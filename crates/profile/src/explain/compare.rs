//! Somebody's times for the same work on two devices, against what the hardware explains.

use serde::Serialize;

use super::carry::record_for;
use super::causes::{self, Cause};
use super::{OnDevice, Stage};
use crate::devices::Device;
use crate::record::{BenchReport, Ceilings, LayerRecord};
use crate::roofline::Rates;

/// A public report of a tracker with dense 4D correlation and a transformer, all in f32, on one clip of 47
/// frames of 256×256: seconds on a T4 and on an A100. Its number of points is not known.
pub const PUBLIC: [(&str, f64); 2] = [("t4", 85.0), ("a100", 0.5)];

/// A time that somebody saw, in f32.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// The device's name in the table.
    pub device: String,
    /// Seconds for the clip.
    pub seconds: f64,
}

/// Observed times and what explains them.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Whether the times are [`PUBLIC`], and not given by the user.
    pub public: bool,
    /// Each time against the floor of this report's work, shortest first.
    pub observed: Vec<TimesOf>,
    /// The slowest against the fastest, where there are two.
    pub pair: Option<Pair>,
    /// What the work would take there with this engine.
    pub here: Vec<AtBest>,
}

/// An observed time against the floor.
#[derive(Debug, Clone, Serialize)]
pub struct TimesOf {
    /// The device's name in the table.
    pub device: String,
    /// Its maker's name for it.
    pub title: String,
    /// Observed.
    pub seconds: f64,
    /// Floor of this report's layers, f32 everywhere, in milliseconds.
    pub floor_ms: f64,
    /// How many times the floor was observed.
    pub over_floor: f64,
}

/// Two devices.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// Name of the slower one.
    pub slow: String,
    /// Name of the faster one.
    pub fast: String,
    /// How many times longer the slower one took.
    pub ratio: f64,
    /// What the datasheets say of the two.
    pub rates: Vec<RateRatio>,
    /// What hardware alone makes of this report's layers, by how the code used it.
    pub mixes: Vec<Mix>,
    /// The largest ratio of any rate: no mix of layers explains more by the datasheets.
    pub most: f64,
    /// The same at the rates that good code reaches.
    pub most_reachable: f64,
    /// What is left of `ratio` when the hardware is given all that it can explain.
    pub left: f64,
    /// What may explain the rest.
    pub causes: Vec<Cause>,
}

/// A rate of two devices.
#[derive(Debug, Clone, Serialize)]
pub struct RateRatio {
    /// What is compared.
    pub what: String,
    /// Of the slower device.
    pub slow: f64,
    /// Of the faster device.
    pub fast: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// `fast / slow`.
    pub ratio: f64,
}

/// Floors of this report's layers where f32 code uses tf32 for some products, as far as a device has it.
#[derive(Debug, Clone, Serialize)]
pub struct Mix {
    /// How the code used the devices.
    pub what: &'static str,
    /// Floor on the slower device, in milliseconds.
    pub slow_ms: f64,
    /// Floor on the faster device, in milliseconds.
    pub fast_ms: f64,
    /// Their ratio by the datasheets.
    pub ratio: f64,
    /// Their ratio at the rates that good code reaches.
    pub reachable_ratio: f64,
}

/// This engine at best.
#[derive(Debug, Clone, Serialize)]
pub struct AtBest {
    /// The device's name in the table.
    pub device: String,
    /// The precision.
    pub dtype: String,
    /// At the datasheet's rates, in milliseconds.
    pub floor_ms: f64,
    /// At the rates that good code reaches.
    pub reachable_ms: f64,
    /// Predicted for this engine, where it can be.
    pub predicted_ms: Option<f64>,
}

/// Which products of f32 code run in tf32.
#[derive(Debug, Clone, Copy)]
enum Tf32 {
    Nowhere,
    Convolutions,
    Everywhere,
}

impl Tf32 {
    const ALL: [Self; 3] = [Self::Nowhere, Self::Convolutions, Self::Everywhere];

    fn what(self) -> &'static str {
        match self {
            Self::Nowhere => "f32 everywhere",
            Self::Convolutions => "tf32 for convolutions (PyTorch's default)",
            Self::Everywhere => "tf32 for all products (PyTorch 1.7 to 1.11)",
        }
    }

    /// `fused`: the correlation's layer holds the convolutions over it too.
    fn of(self, stage: Stage, fused: bool, ceilings: &Ceilings) -> &'static str {
        let here = match self {
            Self::Nowhere => false,
            Self::Convolutions => stage.is_convolution() || (fused && stage == Stage::Correlation),
            Self::Everywhere => true,
        };
        if here && ceilings.tflops.contains_key("tf32") {
            "tf32"
        } else {
            "f32"
        }
    }
}

/// Milliseconds that the report's layers take at least under `ceilings`.
fn floor_ms(report: &BenchReport, ceilings: &Ceilings, tf32: Tf32) -> f64 {
    let layers = record_for(report, "f32").map_or(&[][..], |record| &record.layers);
    let fused = is_fused(layers);
    let floors = layers.iter().filter_map(|layer| {
        let dtype = tf32.of(Stage::of(&layer.name), fused, ceilings);
        Some(
            Rates::new(ceilings, dtype)?
                .floor(&layer.cost, layer.calls)
                .ms(),
        )
    });
    floors.sum()
}

/// Whether the report's code correlates and encodes the correlation in one layer.
pub(super) fn is_fused(layers: &[LayerRecord]) -> bool {
    let has = |stage: Stage| layers.iter().any(|layer| Stage::of(&layer.name) == stage);
    has(Stage::Correlation) && !has(Stage::CorrelationEncoder)
}

pub(super) fn compare(
    report: &BenchReport,
    devices: &[OnDevice],
    observed: &[Observation],
) -> Option<Comparison> {
    let public: Vec<_> = PUBLIC
        .map(|(device, seconds)| Observation {
            device: device.to_owned(),
            seconds,
        })
        .into();
    let is_public = observed.is_empty();
    let observed = if is_public { &public } else { observed };
    let on = |name: &str| devices.iter().find(|d| d.device.name == name);
    let mut times = Vec::new();
    for seen in observed {
        let device = &on(&seen.device)?.device;
        let floor = floor_ms(report, &device.ceilings(), Tf32::Nowhere);
        times.push(TimesOf {
            device: device.name.clone(),
            title: device.title.clone(),
            seconds: seen.seconds,
            floor_ms: floor,
            over_floor: seen.seconds * 1e3 / floor,
        });
    }
    times.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let pair = match &times[..] {
        [fast, .., slow] => Some(pair(
            report,
            (on(&slow.device)?, slow.seconds),
            (on(&fast.device)?, fast.seconds),
        )),
        _ => None,
    };
    let here = times
        .iter()
        .rev()
        .filter_map(|t| on(&t.device))
        .flat_map(|on| {
            on.precisions
                .iter()
                .filter(|p| p.dtype != "bf16")
                .map(|p| AtBest {
                    device: on.device.name.clone(),
                    dtype: p.dtype.clone(),
                    floor_ms: p.floor_ms,
                    reachable_ms: p.reachable_ms,
                    predicted_ms: p.predicted_ms.or(p.measured_ms),
                })
        });
    Some(Comparison {
        public: is_public,
        here: here.collect(),
        observed: times,
        pair,
    })
}

fn pair(report: &BenchReport, slow: (&OnDevice, f64), fast: (&OnDevice, f64)) -> Pair {
    let ((slow_on, slow_s), (fast_on, fast_s)) = (slow, fast);
    let (slow, fast) = (&slow_on.device, &fast_on.device);
    let ratio = slow_s / fast_s;
    let mixes: Vec<_> = Tf32::ALL.map(|tf32| mix(report, slow, fast, tf32)).into();
    let most_of = |slow: &Ceilings, fast: &Ceilings| {
        let rates = rates(slow, fast);
        rates.iter().map(|r| r.ratio).fold(0.0, f64::max)
    };
    let most = most_of(&slow.ceilings(), &fast.ceilings());
    let most_reachable = most_of(&slow.reachable_ceilings(), &fast.reachable_ceilings());
    let left = ratio / most.max(most_reachable);
    let explained = mixes.iter().flat_map(|m| [m.ratio, m.reachable_ratio]);
    let carried = fast_s * explained.fold(0.0, f64::max);
    Pair {
        slow: slow.name.clone(),
        fast: fast.name.clone(),
        ratio,
        rates: rates(&slow.ceilings(), &fast.ceilings()),
        mixes,
        most,
        most_reachable,
        left,
        causes: if carried < slow_s {
            causes::of(report, slow_on, slow_s, slow_s - carried)
        } else {
            Vec::new()
        },
    }
}

fn rates(slow: &Ceilings, fast: &Ceilings) -> Vec<RateRatio> {
    let row = |what: &str, slow: f64, fast: f64, unit| RateRatio {
        what: what.to_owned(),
        slow,
        fast,
        unit,
        ratio: fast / slow,
    };
    let of = |ceilings: &Ceilings, dtype: &str| ceilings.tflops.get(dtype).copied();
    let mut rows = Vec::new();
    if let (Some(s), Some(f)) = (of(slow, "f32"), of(fast, "f32")) {
        rows.push(row("products in f32", s, f, "TFLOP/s"));
        if let Some(f) = of(fast, "tf32") {
            let (s, what) = match of(slow, "tf32") {
                Some(s) => (s, "products in tf32"),
                None => (s, "products, tf32 against f32"),
            };
            rows.push(row(what, s, f, "TFLOP/s"));
        }
    }
    let vector = (slow.vector_tflops, fast.vector_tflops);
    rows.push(row("other arithmetic", vector.0, vector.1, "TFLOP/s"));
    rows.push(row(
        "bandwidth",
        slow.bandwidth_gbs,
        fast.bandwidth_gbs,
        "GB/s",
    ));
    rows
}

fn mix(report: &BenchReport, slow: &Device, fast: &Device, tf32: Tf32) -> Mix {
    let floor = |ceilings: &Ceilings| floor_ms(report, ceilings, tf32);
    let (slow_ms, fast_ms) = (floor(&slow.ceilings()), floor(&fast.ceilings()));
    Mix {
        what: tf32.what(),
        slow_ms,
        fast_ms,
        ratio: slow_ms / fast_ms,
        reachable_ratio: floor(&slow.reachable_ceilings()) / floor(&fast.reachable_ceilings()),
    }
}
