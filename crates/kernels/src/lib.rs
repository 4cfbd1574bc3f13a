//! The few fused operations that the point trackers live on.
//!
//! Tensors are channels last: `[frames, height, width, channels]`. Every operation has one signature and
//! more than one form:
//!
//! * `plain`: Candle operations, any device, written to be read next to the definition;
//! * a CPU form, which the public function takes for f32 tensors on the CPU;
//! * a CUDA form with the feature `cuda`, in the module `cuda`: device code of this crate, recorded on a tape of
//!   launches instead of called one by one. With the feature `emulate` it also runs on the CPU, for tests.
//!
//! Tests hold the forms equal on random shapes. Results of the CPU forms do not depend on the number of
//! threads: work is split into pieces of a size that follows from the shapes alone, and every number is
//! summed in one fixed order.

#![allow(unsafe_code)] // The matrix product's entry point takes pointers; `cpu::matmul` checks them.

mod attention;
mod conv;
mod correlation;
mod correlation_encoder;
mod cost_volume;
mod cpu;
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub mod cuda;
mod linear;
mod motion;
mod norm;
mod resize;
mod support;
#[cfg(test)]
mod testing;

pub use attention::{Attention, attention};
pub use conv::Conv2d;
pub use correlation::{Level, correlate, correlate_and_encode};
pub use correlation_encoder::{CorrelationEncoder, EncoderLayer};
pub use cost_volume::{CostHead, InitialTracks, initial_tracks};
pub use linear::{Activation, Linear};
pub use motion::{MOTION_FEATURES, motion_features};
pub use norm::{LayerNorm, instance_norm_relu, l2_normalize};
pub use resize::resize_bilinear;
pub use support::sample_support;

/// Supports reach this many grid cells from their centre.
pub const RADIUS: usize = 3;
/// Cells on a side of a support: 7.
pub const SUPPORT: usize = 2 * RADIUS + 1;

/// Where a SAME convolution's outputs start: `(outputs, padding before)` along one axis.
///
/// The padding's total is what makes `ceil(size / stride)` outputs; the smaller half comes first.
pub fn same_padding(size: usize, kernel: usize, stride: usize) -> (usize, usize) {
    let outputs = size.div_ceil(stride);
    let total = ((outputs.max(1) - 1) * stride + kernel).saturating_sub(size);
    (outputs, total / 2)
}
