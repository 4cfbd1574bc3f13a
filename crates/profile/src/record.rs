//! What a benchmark found, as files keep it: schema `track-bench/1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Cost;

/// The schema's name and version. The number grows when a field changes its meaning or goes away.
pub const SCHEMA: &str = "track-bench/1";

/// One benchmark: a machine, a clip, and what each precision took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name and version of the program.
    pub program: String,
    /// The commit that the program was built from, where that is known.
    pub commit: Option<String>,
    /// The computer.
    pub machine: Machine,
    /// What computed.
    pub device: DeviceRecord,
    /// What the device can reach.
    pub ceilings: Ceilings,
    /// What was asked for.
    pub settings: Settings,
    /// One entry a precision, in the order in which they ran.
    pub precisions: Vec<PrecisionRecord>,
}

/// The computer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and architecture.
    pub system: String,
    /// The processor's name.
    pub processor: String,
    /// Threads that the host computes with.
    pub threads: usize,
    /// Memory in bytes, where that is known.
    pub memory_bytes: Option<u64>,
}

/// What computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// The device's name.
    pub name: String,
    /// As `9.0`.
    pub compute_capability: Option<String>,
    /// The device code that ran: `sm_90`, `compute_75` and so on.
    pub code: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// The device's own memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Its second-level cache, in bytes.
    pub l2_bytes: Option<u64>,
    /// Its multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Highest clock of the multiprocessors, in MHz.
    pub clock_mhz: Option<u32>,
    /// Highest clock of the memory, in MHz.
    pub memory_clock_mhz: Option<u32>,
}

/// What a device can reach at best, to compare layers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Memory traffic, read and written, in 10⁹ bytes a second.
    pub bandwidth_gbs: f64,
    /// Between two dependent launches, in microseconds; nothing where layers are plain calls.
    pub launch_us: Option<f64>,
    /// Matrix products by precision (`f32`, `tf32`, `f16`, `bf16`), in 10¹² operations a second.
    pub tflops: BTreeMap<String, f64>,
    /// Other f32 arithmetic, in 10¹² operations a second.
    pub vector_tflops: f64,
    /// `measured`, or the name of an entry in the table of devices.
    pub source: String,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The clip's name.
    pub clip: String,
    /// Whether the frames were made up.
    pub synthetic: bool,
    /// Frames tracked.
    pub frames: usize,
    /// Width of the picture that is fed into the model, in pixels.
    pub width: usize,
    /// Its height in pixels.
    pub height: usize,
    /// Points followed.
    pub points: usize,
    /// The model's name.
    pub model: String,
    /// The weights' name, or `made up`.
    pub weights: String,
    /// Checksum of the weights; empty where they were made up.
    pub weights_sha256: String,
    /// Timed runs.
    pub runs: usize,
    /// Runs before them that count for nothing.
    pub warmup: usize,
    /// Clips tracked one after the other in one run.
    pub batch: usize,
}

/// What one precision took. Times are those of one run, which tracks [`Settings::batch`] clips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrecisionRecord {
    /// `f32`, `tf32`, `f16` or `bf16`.
    pub dtype: String,
    /// From a file to tracks on the host, by the host's clock: decode, upload, model and download one after the other.
    pub end_to_end: Timing,
    /// Frames decoded into memory.
    pub decode: Timing,
    /// Frames to the device, by its events.
    pub upload: Option<Timing>,
    /// The forward pass: by the device's events, or the host's clock where the host computes.
    pub model: Timing,
    /// Tracks from the device, by its events.
    pub download: Option<Timing>,
    /// Points × frames of all clips of a run, over the model's median.
    pub points_frames_per_second: f64,
    /// Most device memory held.
    pub peak_device_bytes: Option<u64>,
    /// Most host memory that the process held during the timed runs.
    pub peak_host_bytes: Option<u64>,
    /// Share of the end-to-end time in which the device was busy.
    pub device_busy: Option<f64>,
    /// Kernels and copies launched for one clip.
    pub launches: Option<u64>,
    /// The forward pass with every layer timed.
    pub profiled: Timing,
    /// The layers of the profiled runs, in the order of their first call.
    pub layers: Vec<LayerRecord>,
}

impl PrecisionRecord {
    /// Sum over the layers' medians, in milliseconds.
    pub fn layers_ms(&self) -> f64 {
        self.layers.iter().map(|layer| layer.median_ms).sum()
    }
}

/// Times of repeated runs, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Half of the runs took less.
    pub median_ms: f64,
    /// Of a hundred runs, 95 took at most this (nearest rank: with fewer than 20, the slowest).
    pub p95_ms: f64,
    /// The fastest run.
    pub min_ms: f64,
    /// Every run, in order.
    pub runs_ms: Vec<f64>,
}

impl Timing {
    /// Sums up runs; without any, all is zero.
    pub fn new(runs_ms: Vec<f64>) -> Self {
        let mut sorted = runs_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        if n == 0 {
            return Self::default();
        }
        Self {
            median_ms: median_of_sorted(&sorted),
            p95_ms: sorted[(n * 95).div_ceil(100) - 1],
            min_ms: sorted[0],
            runs_ms,
        }
    }
}

/// The middle of some times, or the mean of the two in the middle; zero without any.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    median_of_sorted(&times)
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// What one layer took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// The layer's name, dotted from the outside in.
    pub name: String,
    /// Calls in one run.
    pub calls: u64,
    /// All calls of one run, median over the profiled runs, in milliseconds.
    pub median_ms: f64,
    /// What all calls of one run spend.
    pub cost: Cost,
}

/// Bytes that a value takes in a precision; `None` for a name that is none.
pub fn value_size(dtype: &str) -> Option<u64> {
    match dtype {
        "f32" | "tf32" => Some(4),
        "f16" | "bf16" => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_by_hand() {
        let timing = Timing::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((timing.median_ms, timing.min_ms), (2.5, 1.0));
        assert_eq!(timing.p95_ms, 4.0);
        assert_eq!(timing.runs_ms, [4.0, 1.0, 3.0, 2.0]);
        let hundred = Timing::new((1..=100).map(f64::from).collect());
        assert_eq!((hundred.median_ms, hundred.p95_ms), (50.5, 95.0));
        assert_eq!(Timing::new(vec![]), Timing::default());
    }
}
