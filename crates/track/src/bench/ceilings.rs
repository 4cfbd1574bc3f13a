//! What a device can reach, measured on the spot.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use track_profile::record::{Ceilings, DeviceRecord, Machine};

use crate::{Error, Result, Tracker, system};

/// Rows and columns of the product that is timed.
const SIDE: usize = 1536;
/// Bytes that are copied: more than caches hold.
const COPIED: usize = 256 << 20;
/// Bytes on a machine that has little.
const COPIED_AT_LEAST: usize = 16 << 20;
/// Times are the best of so many.
const TRIES: usize = 5;

/// The device of a tracker and what it can reach.
///
/// # Errors
/// A device that cannot be measured, or that fails.
pub(super) fn of(tracker: &Tracker, machine: &Machine) -> Result<(DeviceRecord, Ceilings)> {
    let Some(info) = tracker.on.info() else {
        return Ok((cpu_record(machine), cpu()?));
    };
    let Some(found) = tracker.on.ceilings()? else {
        return Err(Error::Internal("a device without ceilings".into()));
    };
    let (major, minor) = info.capability;
    let record = DeviceRecord {
        kind: "cuda".to_owned(),
        name: info.name,
        compute_capability: Some(format!("{major}.{minor}")),
        code: Some(info.code),
        driver: Some(format!("CUDA {}", info.driver)),
        memory_bytes: Some(info.memory),
        l2_bytes: Some(info.l2),
        multiprocessors: Some(info.multiprocessors),
        clock_mhz: Some(info.clock_mhz),
        memory_clock_mhz: Some(info.memory_clock_mhz),
    };
    let rates = found.products.iter();
    let ceilings = Ceilings {
        bandwidth_gbs: found.bandwidth / 1e9,
        launch_us: Some(found.launch.as_secs_f64() * 1e6),
        tflops: rates
            .map(|(p, rate)| (p.name().to_owned(), rate / 1e12))
            .collect(),
        vector_tflops: found.vector / 1e12,
        source: "copy and launch measured; arithmetic by multiprocessors and highest clock"
            .to_owned(),
    };
    Ok((record, ceilings))
}

fn cpu_record(machine: &Machine) -> DeviceRecord {
    DeviceRecord {
        kind: "cpu".to_owned(),
        name: machine.processor.clone(),
        compute_capability: None,
        code: None,
        driver: None,
        memory_bytes: machine.memory_bytes,
        l2_bytes: None,
        multiprocessors: None,
        clock_mhz: None,
        memory_clock_mhz: None,
    }
}

/// All threads copy a large block, then multiply two large f32 matrices.
///
/// Both kinds of arithmetic run in the same vector units of a CPU, so the product's rate is that of both.
fn cpu() -> Result<Ceilings> {
    let product = product_rate().map_err(track_model::Error::from)? / 1e12;
    Ok(Ceilings {
        bandwidth_gbs: copy_rate() / 1e9,
        launch_us: None,
        tflops: [("f32".to_owned(), product)].into(),
        vector_tflops: product,
        source: "measured".to_owned(),
    })
}

/// Bytes read and written a second.
fn copy_rate() -> f64 {
    let spare = system::available_memory().map_or(usize::MAX, |b| b as usize / 8);
    let bytes = COPIED.min(spare).max(COPIED_AT_LEAST);
    let from = vec![1_u8; bytes];
    let mut to = vec![0_u8; bytes];
    let block = bytes.div_ceil(4 * rayon::current_num_threads());
    let seconds = best(|| {
        to.par_chunks_mut(block)
            .zip(from.par_chunks(block))
            .for_each(|(to, from)| to.copy_from_slice(from));
        std::hint::black_box(&to);
        Ok::<_, std::convert::Infallible>(())
    });
    2.0 * bytes as f64 / seconds.unwrap_or(f64::INFINITY)
}

/// Operations a second.
fn product_rate() -> candle_core::Result<f64> {
    let a = Tensor::ones((SIDE, SIDE), DType::F32, &Device::Cpu)?;
    let seconds = best(|| a.matmul(&a).map(|c| drop(std::hint::black_box(c))))?;
    Ok(2.0 * (SIDE as f64).powi(3) / seconds)
}

/// Seconds of the fastest try, after one that counts for nothing.
fn best<E>(mut work: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    work()?;
    let mut seconds = f64::INFINITY;
    for _ in 0..TRIES {
        let start = Instant::now();
        work()?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    // A clock that did not move would make an infinite rate.
    Ok(seconds.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_reaches_something_finite() {
        let ceilings = cpu().unwrap();
        assert!(ceilings.bandwidth_gbs > 0.01 && ceilings.bandwidth_gbs.is_finite());
        assert!(ceilings.tflops["f32"] > 1e-4 && ceilings.tflops["f32"].is_finite());
        assert_eq!(ceilings.launch_us, None);
    }
}
