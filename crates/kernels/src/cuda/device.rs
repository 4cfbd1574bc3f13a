//! A device that runs the kernels.

use std::fmt;
use std::sync::Arc;

use candle_core::{Result, bail};

use super::tape::Step;

/// How values are stored and multiplied on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// f32, every operation an IEEE one.
    F32,
    /// f32 in memory, products on Tensor Cores with 10 bits of mantissa.
    Tf32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// Bytes of a value in memory.
    pub fn size(self) -> usize {
        match self {
            Self::F32 | Self::Tf32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The end of the names of kernels that multiply.
    pub(crate) fn product(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The end of the names of kernels that only read and write.
    pub(crate) fn memory(self) -> &'static str {
        match self {
            Self::F32 | Self::Tf32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Values as they lie in memory, rounded to nearest.
    pub(crate) fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 | Self::Tf32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::F16 => values
                .iter()
                .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
                .collect(),
            Self::Bf16 => values
                .iter()
                .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
                .collect(),
        }
    }

    /// The inverse of `encode`.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 | Self::Tf32 => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Self::F16 => bytes
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            Self::Bf16 => bytes
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        }
    }
}

/// What is known about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: usize,
    /// Its name, as the driver gives it.
    pub name: String,
    /// Compute capability: 7.5 is (7, 5).
    pub capability: (u32, u32),
    /// The architecture that the running code was compiled for: 75, 80, 86, 89 or 90.
    pub code: u32,
    /// Whether the code came as PTX and was finished by the driver.
    pub from_ptx: bool,
    /// The newest CUDA version that the driver knows, such as "13.0".
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

impl DeviceInfo {
    /// What the code that runs can compute in.
    pub fn elements(&self) -> &'static [Element] {
        // sm_75 has Tensor Cores for f16 alone.
        if self.code < 80 {
            &[Element::F32, Element::F16]
        } else {
            &[Element::F32, Element::Tf32, Element::F16, Element::Bf16]
        }
    }

    /// Slices of a product that are in flight: as `TRACK_STAGES` in product.cu.
    pub(crate) fn product_stages(&self) -> usize {
        if self.code < 80 { 2 } else { 3 }
    }
}

/// A tensor as a copy engine sees it: the innermost dimension first.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // The emulator has no such engine.
pub(crate) struct TensorDesc {
    pub(crate) element: Element,
    pub(crate) address: u64,
    pub(crate) dims: [u64; 5],
    /// Bytes from one entry to the next, from the second dimension on.
    pub(crate) strides: [u64; 4],
    /// Extent of what is copied at a time, before steps.
    pub(crate) boxes: [u32; 5],
    /// Every how many-th entry is taken.
    pub(crate) steps: [u32; 5],
    /// Dimensions that count.
    pub(crate) rank: usize,
}

/// What runs the kernels: a driver's device, or the emulator.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    fn info(&self) -> &DeviceInfo;
    /// Memory for so many bytes, aligned to 256.
    fn allocate(&self, bytes: usize) -> Result<u64>;
    fn free(&self, at: u64);
    fn upload(&self, from: &[u8], to: u64) -> Result<()>;
    fn download(&self, from: u64, to: &mut [u8]) -> Result<()>;
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()>;
    fn fill(&self, at: u64, value: u8, bytes: usize) -> Result<()>;
    /// Bytes that are free on the device now.
    fn free_memory(&self) -> Result<u64>;
    /// Launches in order; returns before they are done.
    fn launch(&self, steps: &[Step]) -> Result<()>;
    /// Records launches for [`Backend::replay`].
    fn record(&self, steps: &[Step]) -> Result<Box<dyn Replay>>;
    /// Launches with an event before each step and after the last; waits. Microseconds from the first event.
    fn launch_timed(&self, steps: &[Step]) -> Result<Vec<f64>>;
    /// Waits for everything launched so far.
    fn wait(&self) -> Result<()>;
    /// Describes a tensor to the device's copy engine, whose 128-byte rows it is to swizzle.
    fn tensor_map(&self, tensor: &TensorDesc) -> Result<[u64; 16]>;
    /// Marks a moment in the device's order of work.
    fn mark(&self) -> Result<Box<dyn Mark>>;
}

/// A recorded sequence of launches.
pub(crate) trait Replay: Send + fmt::Debug {
    /// Launches it; returns before it is done.
    fn replay(&self) -> Result<()>;
}

/// A moment on the device.
pub(crate) trait Mark: Send + fmt::Debug {
    /// Microseconds from an earlier mark to this one; waits for this one.
    fn since(&self, earlier: &dyn Mark) -> Result<f64>;
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A device, shared by everything that lives on it.
#[derive(Clone, Debug)]
pub struct Gpu(pub(crate) Arc<dyn Backend>);

impl Gpu {
    /// The CUDA device of this number.
    ///
    /// `TRACK_FORCE_ARCH=75` (or 80) in the environment makes it run the code for that older architecture, so that
    /// it can be tested where the older device is not at hand.
    ///
    /// # Errors
    /// A build without CUDA, no driver, a driver that does not answer, no such device, or one older than sm_75.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        {
            Ok(Self(super::driver::open(ordinal)?))
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = ordinal;
            bail!("this build has no CUDA")
        }
    }

    /// The device code on the CPU, thread by thread: for tests, far too slow for anything else.
    #[cfg(feature = "emulate")]
    pub fn emulated() -> Self {
        Self(Arc::new(super::emulator::Emulator::new()))
    }

    /// What is known about the device.
    pub fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    /// Bytes of device memory that are free now.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn free_memory(&self) -> Result<u64> {
        self.0.free_memory()
    }

    /// Waits for everything launched so far.
    ///
    /// # Errors
    /// A launch that failed.
    pub fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    /// A stopwatch that starts now, in the device's order of work.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn stopwatch(&self) -> Result<Stopwatch> {
        Ok(Stopwatch {
            gpu: self.clone(),
            start: self.0.mark()?,
        })
    }

    /// Refuses what the device cannot compute in.
    pub(crate) fn check(&self, element: Element) -> Result<()> {
        if self.info().elements().contains(&element) {
            return Ok(());
        }
        bail!(
            "{} cannot compute in {}",
            self.info().name,
            element.product()
        )
    }
}

/// A moment in the device's order of work.
#[derive(Debug)]
pub struct Stopwatch {
    gpu: Gpu,
    start: Box<dyn Mark>,
}

impl Stopwatch {
    /// Ends the span after what was launched so far; does not wait.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn stop(self) -> Result<Span> {
        Ok(Span {
            end: self.gpu.0.mark()?,
            start: self.start,
        })
    }
}

/// Two moments in the device's order of work.
#[derive(Debug)]
pub struct Span {
    start: Box<dyn Mark>,
    end: Box<dyn Mark>,
}

impl Span {
    /// The time between them; waits for its end.
    ///
    /// # Errors
    /// A launch in between that failed.
    pub fn elapsed(&self) -> Result<std::time::Duration> {
        let micros = self.end.since(self.start.as_ref())?;
        Ok(std::time::Duration::from_secs_f64(micros.max(0.0) * 1e-6))
    }
}
