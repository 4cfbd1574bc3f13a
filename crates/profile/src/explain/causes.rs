//! What may make a device slower than its hardware: candidates, each with its evidence and its arithmetic.

use serde::Serialize;

use super::OnDevice;
use super::carry::record_for;
use super::words::{count, digits, plain, size, time, times};
use crate::devices::HOST_LAUNCH_US;
use crate::record::{BenchReport, value_size};

/// A candidate.
#[derive(Debug, Clone, Serialize)]
pub struct Cause {
    /// What it would be.
    pub what: &'static str,
    /// What was measured or is known, and what follows for this report's work.
    pub evidence: String,
    /// Seconds that it would take on this report's work, where that can be computed.
    pub seconds: Option<f64>,
    /// How far it goes, and how to tell.
    pub verdict: String,
}

/// One convolution of the correlation encoder, one sample at a time, and all samples at once by cuDNN: measured
/// in f32 in PyTorch on an H200, milliseconds for this many samples.
const LOOP_MS: (f64, f64, u64) = (220.0, 0.47, 12_032);
/// Refinements of a LocoTrack model.
const REFINEMENTS: u64 = 4;
/// The published LocoTrack-base with and without a bad plan: measured in f32 in PyTorch on an H200,
/// milliseconds.
const PLAN_MS: (f64, f64) = (214.0, 126.0);
/// GB/s that pages cross PCIe 3.0 ×16 with: assumed, of 15.75 in theory.
const PCIE_GBS: f64 = 12.0;

/// Candidates for `excess` seconds of `seconds` that the hardware does not explain.
pub(super) fn of(report: &BenchReport, slow: &OnDevice, seconds: f64, excess: f64) -> Vec<Cause> {
    [
        per_sample(report, excess),
        Some(launches(report, excess)),
        paging(report, slow, excess),
        Some(cache(report, slow, excess)),
        Some(plan(seconds, excess)),
        clocks(slow, seconds, excess),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Convolutions of the correlation encoders that a token passes in a refinement: layers × levels × sides.
fn encoder_convolutions(model: &str) -> Option<u64> {
    match model {
        "locotrack-small" => Some(2 * 3 * 2),
        "locotrack-base" => Some(3 * 3 * 2),
        _ => None,
    }
}

fn per_sample(report: &BenchReport, excess: f64) -> Option<Cause> {
    let settings = &report.settings;
    let convolutions = encoder_convolutions(&settings.model)?;
    let tokens = (settings.points * settings.frames * settings.batch) as u64;
    let passes = tokens * convolutions * REFINEMENTS;
    if passes == 0 {
        return None;
    }
    let (looped, batched, samples) = LOOP_MS;
    let each_us = looped * 1e3 / samples as f64;
    let seconds = passes as f64 * each_us * 1e-6;
    let needed_us = excess * 1e6 / passes as f64;
    let factor = needed_us / each_us;
    let verdict = if factor <= 1.0 {
        "It explains all of it.".to_owned()
    } else {
        let reach = if factor <= 10.0 {
            "within what a slower host, lower clocks or more points make of it"
        } else {
            "more than a slower host makes of it, so there would have to be more points"
        };
        format!(
            "All of it would take {} µs a sample, {} times as much: {reach}.",
            digits(needed_us),
            times(factor)
        )
    };
    Some(Cause {
        what: "Convolutions one sample at a time, as PyTorch computes them where cuDNN is missing or off",
        evidence: format!(
            "Measured on an H200: {looped:.0} against {batched} ms for one convolution of the correlation \
             encoder over {} samples, {} times, {} µs a sample. The {} tokens (points × frames) \
             of this report pass {convolutions} of them in each of {REFINEMENTS} refinements: {} at that cost.",
            count(samples),
            times(looped / batched),
            plain(each_us),
            count(tokens),
            time(seconds * 1e3),
        ),
        seconds: Some(seconds),
        verdict: format!(
            "{verdict} cudnn.benchmark would change nothing. torch.backends.cudnn.is_available() and .enabled \
             tell, and so does a profiler that counts {} million of them.",
            digits(passes as f64 / 1e6)
        ),
    })
}

fn launches(report: &BenchReport, excess: f64) -> Cause {
    let fitting = excess * 1e6 / HOST_LAUNCH_US;
    let counted = report.precisions.iter().find_map(|p| p.launches);
    let ours = counted.map_or_else(String::new, |n| {
        format!(" This engine makes {} a clip.", count(n))
    });
    Cause {
        what: "Launches that the host cannot issue faster",
        evidence: format!(
            "A launch takes {HOST_LAUNCH_US} µs measured on an H200's host: the unexplained time is {} million \
             of them.{ours}",
            digits(fitting / 1e6)
        ),
        seconds: None,
        verdict: "Only a loop over samples or points makes so many; a forward pass in large operations makes \
                  thousands."
            .to_owned(),
    }
}

fn paging(report: &BenchReport, slow: &OnDevice, excess: f64) -> Option<Cause> {
    let bytes = bytes(report);
    let seconds = bytes as f64 / (PCIE_GBS * 1e9);
    let usable = slow.device.usable_memory();
    let needs = slow
        .precisions
        .iter()
        .find(|p| p.dtype == "f32")?
        .memory
        .as_ref();
    let ours = needs.map_or_else(String::new, |m| {
        let fits = if m.fits {
            "which fits"
        } else {
            "which does not fit"
        };
        format!(" This engine needs {} in f32, {fits}.", size(m.bytes))
    });
    Some(Cause {
        what: "Memory paged to the host and back",
        evidence: format!(
            "All bytes of this report's layers in f32, {} GB, cross PCIe at an assumed {PCIE_GBS} GB/s in {}; \
             the unexplained time is {} GB.{ours}",
            digits(bytes as f64 / 1e9),
            time(seconds * 1e3),
            digits(excess * PCIE_GBS),
        ),
        seconds: Some(seconds),
        verdict: format!(
            "Only where more than the {} that can be used were in use, and only where memory is paged at all \
             (managed memory, some drivers on Windows); elsewhere such a run ends with an error. nvidia-smi \
             tells.",
            size(usable)
        ),
    })
}

fn cache(report: &BenchReport, slow: &OnDevice, excess: f64) -> Cause {
    let ceilings = slow.device.reachable_ceilings();
    let seconds = bytes(report) as f64 / (ceilings.bandwidth_gbs * 1e9);
    let cache = slow
        .device
        .l2_mib
        .map_or_else(String::new, |mib| format!(" of {} MiB", plain(mib)));
    Cause {
        what: "A cache that is too small",
        evidence: format!(
            "If nothing ever stayed in the cache{cache} between layers, this report's bytes would take {}, which \
             the floors count already; the unexplained time is {} times as much.",
            time(seconds * 1e3),
            times(excess / seconds)
        ),
        seconds: Some(seconds),
        verdict: if excess > 20.0 * seconds {
            "Code that is not fused moves several times these bytes, not so many.".to_owned()
        } else {
            "Code that is not fused may move so many.".to_owned()
        },
    }
}

/// Bytes of all layers in f32.
fn bytes(report: &BenchReport) -> u64 {
    let layers = record_for(report, "f32").map_or(&[][..], |record| &record.layers);
    let size = value_size("f32").unwrap_or(4);
    layers.iter().map(|layer| layer.cost.bytes_at(size)).sum()
}

fn plan(seconds: f64, excess: f64) -> Cause {
    let (bad, good) = PLAN_MS;
    let worth = bad / good;
    let needed = seconds / (seconds - excess).max(f64::MIN_POSITIVE);
    Cause {
        what: "A bad plan for convolutions",
        evidence: format!(
            "Measured on an H200 in f32: seven convolutions of 256 channels, padded by hand, were computed by \
             an FFT and took 96 of {bad:.0} ms. With a good plan all takes {good:.0} ms: {} times less.",
            times(worth)
        ),
        seconds: None,
        verdict: if needed > worth * 3.0 {
            format!(
                "Far from the {} times that are missing here.",
                times(needed)
            )
        } else {
            "It may be that; another batch size or padding given to the convolution tells."
                .to_owned()
        },
    }
}

fn clocks(slow: &OnDevice, seconds: f64, excess: f64) -> Option<Cause> {
    let (base, boost) = slow.device.clock_mhz?;
    let (worth, needed) = (
        boost / base,
        seconds / (seconds - excess).max(f64::MIN_POSITIVE),
    );
    Some(Cause {
        what: "Clocks lowered by power or heat",
        evidence: format!(
            "Its datasheet rates are at {boost:.0} MHz; its base clock is {base:.0}: {} times less.",
            times(worth)
        ),
        seconds: None,
        verdict: if needed > worth {
            format!("Not the {} times that are missing here.", times(needed))
        } else {
            "It may be that; nvidia-smi shows the clocks.".to_owned()
        },
    })
}
