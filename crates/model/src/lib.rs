//! The trackers themselves, on Candle: configuration, weights and the forward pass.
//!
//! A model is loaded once with [`load`] and shared between threads. A clip is tracked by a [`Session`]:
//! frames are pushed in order, then every query is followed through all of them.
//!
//! Positions are raster positions throughout: `x` to the right, `y` down, (0, 0) the upper-left corner of
//! the upper-left pixel, so that a pixel's centre lies at +0.5.

mod device;
mod error;
mod locotrack;
mod precision;
mod tracker;
mod weights;

pub use device::{Device, DeviceCeilings, DeviceInfo};
pub use error::Error;
pub use precision::{Precision, PrecisionError};
pub use tracker::{
    Context, DeviceStats, ModelKind, Observer, PointTracker, Query, RawTracks, Resolution, Session,
    SessionOptions, Silent, Size, Stage,
};
pub use weights::{WeightSource, load};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
