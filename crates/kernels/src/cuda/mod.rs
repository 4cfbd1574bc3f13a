//! The CUDA forms: device code that the program carries, launched through the driver alone.
//!
//! Nothing here is linked against CUDA. The driver is opened at run time, so that one program starts with and
//! without it; the kernels (`cuda/*.cu`) are compiled by the build script and embedded. A forward pass is a
//! [`Tape`]: its launches are recorded once for given shapes, then replayed as one CUDA graph, or layer by layer
//! between device events when it is to be measured.
//!
//! With the cargo feature `emulate` the same device code also runs on the CPU, thread by thread, for tests.

mod attend;
mod buffer;
mod ceilings;
mod device;
#[cfg(test)]
#[cfg(feature = "emulate")]
mod device_testing;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "emulate")]
mod emulate;
#[cfg(feature = "emulate")]
mod emulator;
mod lookup;
mod norm;
#[cfg(test)]
#[cfg(feature = "emulate")]
mod norm_tests;
mod ops;
mod product;
#[cfg(test)]
#[cfg(feature = "emulate")]
mod product_tests;
mod stream;
mod tape;
mod weight;

pub use buffer::{Buffer, Slice};
pub use ceilings::Ceilings;
pub use device::{DeviceInfo, Element, Gpu, Span, Stopwatch};
pub use lookup::{CORRELATION_CHANNELS, CorrelateLevel, HeadWeights, SoftArgMax};
pub use norm::instance_norm_scratch;
pub use ops::{Affine, GroupNorm, MOTION_COLUMNS, PictureSource, TrackState};
pub use product::{ProductOp, Window};
pub use tape::{LayerTime, Tape};
pub use weight::PackedWeight;
