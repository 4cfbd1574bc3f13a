//! Track any point in a video: the library that an app embeds.
//!
//! Give it a video and some points, and it says where each point is on every frame and when it is hidden.
//!
//! ```no_run
//! use track::{Clip, Queries, Tracker, Watch};
//!
//! let tracker = Tracker::builder().build()?;
//! let clip = Clip::open("street.mp4")?;
//! let tracks = tracker.track(&clip, &Queries::grid(10), &Watch::new())?;
//! for frame in 0..tracks.frames() {
//!     let (x, y) = tracks.position(frame, 0).unwrap_or_default();
//!     println!("{:.3} s: {x:.1}, {y:.1}", tracks.times[frame]);
//! }
//! tracks.write("street.json")?;
//! # Ok::<(), track::Error>(())
//! ```
//!
//! - [`Tracker`] is a loaded model. Build it once and share it between threads.
//! - [`Clip`] is where frames come from: a file ([`Clip::open`]), frames in memory ([`MemoryClip`]), or the
//!   app's own decoder ([`Clip::from_source`]).
//! - [`Queries`] are the points to follow: a grid, points on any frames, the inside of a mask, a file.
//! - [`Tracks`] is the answer, with the model's raw numbers beside what was decided from them, and
//!   everything that decided it ([`Provenance`]).
//! - [`Watch`] reports progress and ends a run.
//!
//! Positions are raster positions throughout: x to the right, y down, (0, 0) the upper-left corner of the
//! upper-left pixel of the displayed picture, so that a pixel's centre lies at +0.5. Frames are counted from
//! 0 at the first frame of the clip as it was opened.

pub mod bench;
mod clip;
mod error;
#[cfg(test)]
mod fake;
pub mod golden;
mod mask;
mod memory;
pub mod output;
mod overlay;
mod provenance;
mod queries;
mod query_file;
mod run;
pub mod system;
mod tracker;
mod tracks;
mod watch;
mod write;

pub use clip::{Clip, ClipInfo, ClipOptions, FrameIter, Frames};
pub use error::{Error, ErrorKind};
pub use mask::Mask;
pub use memory::MemoryClip;
pub use output::Format;
pub use overlay::{OverlayStyle, check_overlay};
pub use provenance::{Provenance, WeightsRecord};
pub use queries::{Queries, QueryPoint};
pub use track_model::{DeviceInfo, ModelKind, Precision, Resolution, Size};
pub use track_profile as profile;
pub use track_profile::{Profiler, Report};
pub use track_video::{
    Frame, FrameRange, OverlayOptions, OverlayScale, Position, WriterOptions, ffmpeg_version, raw,
};
pub use tracker::{DeviceChoice, MemoryBudget, Tracker, TrackerBuilder, Weights, default_weights};
pub use tracks::{Status, Tracks};
pub use watch::{Cancel, Progress, Stage, Watch};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
