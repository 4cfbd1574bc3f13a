//! Video frames in and out for point tracking.
//!
//! [`open`] reads anything with frames: a video file that FFmpeg knows, a folder or a pattern of stills, a GIF, a
//! still. Frames come one at a time as RGB8, turned for display, with the index and the time they have in the source.
//! [`Overlay`] draws tracked points onto them, [`OverlayWriter`] writes them as a video, a GIF or a contact sheet.
//!
//! ```no_run
//! use track_video::{OpenOptions, open};
//!
//! let options = OpenOptions { range: "1.5s..4s".parse()?, ..Default::default() };
//! for frame in open("clip.mp4".as_ref(), &options)? {
//!     let frame = frame?;
//!     println!("frame {} at {:.3} s: {}x{}", frame.index, frame.time, frame.width, frame.height);
//! }
//! # Ok::<(), track_video::Error>(())
//! ```

mod draw;
mod error;
#[cfg(feature = "ffmpeg")]
mod ffmpeg;
mod frame;
mod gif;
mod info;
#[cfg(feature = "ffmpeg")]
mod orient;
pub mod overlay;
mod range;
pub mod raw;
mod reader;
mod stills;
mod writer;

pub use error::Error;
pub use frame::Frame;
pub use info::{SourceKind, VideoInfo};
pub use overlay::{Overlay, OverlayOptions, OverlayPoint, OverlayScale};
pub use range::{FrameRange, Position};
pub use reader::{OpenOptions, Reader, open};
pub use writer::{OverlayWriter, WriterOptions};

/// The version of the FFmpeg libraries in use; `None` in a build without FFmpeg.
pub fn ffmpeg_version() -> Option<String> {
    #[cfg(feature = "ffmpeg")]
    return Some(ffmpeg::version());
    #[cfg(not(feature = "ffmpeg"))]
    return None;
}
