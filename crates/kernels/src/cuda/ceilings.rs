//! What a device can reach at best.

use std::time::Duration;

use candle_core::Result;

use super::{Buffer, DeviceInfo, Element, Gpu, Tape};

/// What a device can reach at best: memory as measured, arithmetic by its multiprocessors and highest clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceilings {
    /// Bytes read and written a second by a large copy, measured.
    pub bandwidth: f64,
    /// What one small launch of a replayed graph takes, measured.
    pub launch: Duration,
    /// Operations a second in matrix products.
    pub products: Vec<(Element, f64)>,
    /// Operations a second in other f32 arithmetic.
    pub vector: f64,
}

/// Bytes of the copy that is timed.
const COPIED: usize = 1 << 30;
/// Launches of the graph that is timed.
const LAUNCHES: usize = 256;
/// Times are the best of so many.
const TRIES: usize = 5;

impl Gpu {
    /// Measures and computes what the device can reach. Takes some 10 ms and up to 2 GiB for a moment.
    ///
    /// # Errors
    /// Too little memory, or a driver that fails.
    pub fn ceilings(&self) -> Result<Ceilings> {
        let info = self.info();
        let clocks = f64::from(info.multiprocessors) * f64::from(info.clock_mhz) * 1e6;
        Ok(Ceilings {
            bandwidth: self.copy_rate()?,
            launch: self.launch_time()?,
            products: info
                .elements()
                .iter()
                .map(|e| (*e, clocks * operations(info, *e)))
                .collect(),
            vector: clocks * vector_operations(info),
        })
    }

    fn copy_rate(&self) -> Result<f64> {
        let spare = (self.free_memory()? / 8) as usize;
        let bytes = COPIED.min(spare).max(1 << 20);
        let (from, to) = (Buffer::new(self, bytes)?, Buffer::new(self, bytes)?);
        from.fill(0x5a)?;
        let best = self.best(|| to.copy_from(&from, bytes))?;
        Ok(2.0 * bytes as f64 / best.as_secs_f64().max(1e-9))
    }

    fn launch_time(&self) -> Result<Duration> {
        let picture = Buffer::new(self, 1 << 12)?;
        picture.fill(0)?;
        let mut tape = Tape::new(self);
        tape.layer("launch", ());
        for _ in 0..LAUNCHES {
            tape.l2_normalize(Element::F32, picture.all(), 8, 64, picture.all())?;
        }
        tape.run()?;
        let best = self.best(|| tape.run())?;
        self.wait()?;
        Ok(best / LAUNCHES as u32)
    }

    /// The shortest of some runs, by the device's own clock.
    fn best(&self, mut run: impl FnMut() -> Result<()>) -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            let watch = self.stopwatch()?;
            run()?;
            best = best.min(watch.stop()?.elapsed()?);
        }
        Ok(best)
    }
}

/// f32 operations of a multiprocessor in a clock (CUDA C++ Programming Guide, arithmetic throughput; a fused
/// multiply-add is two).
fn vector_operations(info: &DeviceInfo) -> f64 {
    match info.capability {
        (7, _) | (8, 0) => 128.0,
        _ => 256.0,
    }
}

/// Operations of a multiprocessor in a clock inside dense products that accumulate in f32 (NVIDIA's whitepapers of
/// the Turing, Ampere, Ada and Hopper architectures).
fn operations(info: &DeviceInfo, element: Element) -> f64 {
    let half = match info.capability {
        (7, _) => 1024.0,
        (8, 0) => 2048.0,
        // GeForce cards of these generations accumulate in f32 at half the rate.
        (8 | 12, _) if info.name.contains("GeForce") => 512.0,
        (8 | 12, _) => 1024.0,
        _ => 4096.0,
    };
    match element {
        Element::F16 | Element::Bf16 => half,
        Element::Tf32 => half / 2.0,
        Element::F32 => vector_operations(info),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(
        name: &str,
        capability: (u32, u32),
        multiprocessors: u32,
        clock_mhz: u32,
    ) -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: name.to_owned(),
            capability,
            code: 80,
            from_ptx: false,
            driver: String::new(),
            memory: 0,
            l2: 0,
            multiprocessors,
            clock_mhz,
            memory_clock_mhz: 0,
        }
    }

    #[test]
    fn rates_meet_the_datasheets() {
        // Datasheet: f32 and f16 in TFLOP/s.
        for (info, f32, f16) in [
            (device("Tesla T4", (7, 5), 40, 1590), 8.1, 65.0),
            (
                device("NVIDIA A100-SXM4-40GB", (8, 0), 108, 1410),
                19.5,
                312.0,
            ),
            (device("NVIDIA A10", (8, 6), 72, 1695), 31.2, 125.0),
            (
                device("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520),
                82.6,
                165.2,
            ),
            (device("NVIDIA H100 SXM", (9, 0), 132, 1830), 61.8, 989.4),
        ] {
            let clocks = f64::from(info.multiprocessors) * f64::from(info.clock_mhz) * 1e-6;
            let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.02;
            assert!(
                near(clocks * operations(&info, Element::F32), f32),
                "{}",
                info.name
            );
            assert!(
                near(clocks * operations(&info, Element::F16), f16),
                "{}",
                info.name
            );
        }
    }
}
