//! Where a model computes.

use std::fmt;
use std::time::Duration;

use crate::Precision;

/// A device that a model can be loaded onto.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Device {
    /// The host's processor.
    #[default]
    Cpu,
    /// A CUDA device.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    Gpu(track_kernels::cuda::Gpu),
}

/// What is known about a CUDA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, as the driver gives it.
    pub name: String,
    /// Compute capability: 7.5 is (7, 5).
    pub capability: (u32, u32),
    /// The device code that runs, such as `sm_90`, or `compute_75` where the driver finished it.
    pub code: String,
    /// The newest CUDA version that the driver knows.
    pub driver: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of second-level cache.
    pub l2: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Highest core clock in MHz.
    pub clock_mhz: u32,
    /// Highest memory clock in MHz.
    pub memory_clock_mhz: u32,
}

/// What a CUDA device can reach at best.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceCeilings {
    /// Bytes read and written a second by a large copy, measured.
    pub bandwidth: f64,
    /// What one small launch of a replayed graph takes, measured.
    pub launch: Duration,
    /// Operations a second in matrix products, by multiprocessors, architecture and highest clock.
    pub products: Vec<(Precision, f64)>,
    /// Operations a second in other f32 arithmetic, likewise.
    pub vector: f64,
}

#[cfg(any(feature = "cuda", feature = "emulate"))]
fn precision(element: track_kernels::cuda::Element) -> Precision {
    use track_kernels::cuda::Element;
    match element {
        Element::F32 => Precision::F32,
        Element::Tf32 => Precision::Tf32,
        Element::F16 => Precision::F16,
        Element::Bf16 => Precision::Bf16,
    }
}

impl Device {
    /// The CUDA device of this number.
    ///
    /// # Errors
    /// Why it cannot be had, as the end of a sentence: a build without CUDA, no driver, one that does not answer, no
    /// such device, or one that is too old.
    pub fn cuda(ordinal: usize) -> Result<Self, String> {
        #[cfg(feature = "cuda")]
        {
            match track_kernels::cuda::Gpu::cuda(ordinal) {
                Ok(gpu) => Ok(Self::Gpu(gpu)),
                Err(e) => Err(crate::error::sentence(&e)),
            }
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = ordinal;
            Err("this build has no CUDA".to_owned())
        }
    }

    /// The device code on the CPU, thread by thread: for tests, far too slow for anything else.
    #[cfg(feature = "emulate")]
    pub fn emulated() -> Self {
        Self::Gpu(track_kernels::cuda::Gpu::emulated())
    }

    /// Whether this build can use CUDA devices where there are any.
    pub fn built_with_cuda() -> bool {
        cfg!(feature = "cuda")
    }

    /// What is known about a CUDA device; `None` for the processor.
    pub fn info(&self) -> Option<DeviceInfo> {
        match self {
            Self::Cpu => None,
            #[cfg(any(feature = "cuda", feature = "emulate"))]
            Self::Gpu(gpu) => {
                let info = gpu.info();
                Some(DeviceInfo {
                    name: info.name.clone(),
                    capability: info.capability,
                    code: if info.from_ptx {
                        format!("compute_{}", info.code)
                    } else {
                        format!("sm_{}", info.code)
                    },
                    driver: info.driver.clone(),
                    memory: info.memory,
                    l2: info.l2,
                    multiprocessors: info.multiprocessors,
                    clock_mhz: info.clock_mhz,
                    memory_clock_mhz: info.memory_clock_mhz,
                })
            }
        }
    }

    /// What a CUDA device can reach at best; `None` for the processor.
    ///
    /// # Errors
    /// Too little memory on the device, or a driver that fails.
    pub fn ceilings(&self) -> crate::Result<Option<DeviceCeilings>> {
        match self {
            Self::Cpu => Ok(None),
            #[cfg(any(feature = "cuda", feature = "emulate"))]
            Self::Gpu(gpu) => {
                let found = gpu.ceilings()?;
                let products = found.products.iter();
                Ok(Some(DeviceCeilings {
                    bandwidth: found.bandwidth,
                    launch: found.launch,
                    products: products.map(|(e, rate)| (precision(*e), *rate)).collect(),
                    vector: found.vector,
                }))
            }
        }
    }

    /// What the device can compute in, the most exact first.
    pub fn precisions(&self) -> Vec<Precision> {
        match self {
            Self::Cpu => vec![Precision::F32],
            #[cfg(any(feature = "cuda", feature = "emulate"))]
            Self::Gpu(gpu) => {
                let elements = gpu.info().elements().iter();
                elements.map(|e| precision(*e)).collect()
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("the CPU"),
            #[cfg(any(feature = "cuda", feature = "emulate"))]
            Self::Gpu(gpu) => f.write_str(&gpu.info().name),
        }
    }
}
