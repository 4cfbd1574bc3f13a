//! What is known of a source before its frames are read.

use std::path::PathBuf;

/// What kind of thing the frames come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A video file, read by FFmpeg.
    Video,
    /// A folder or a pattern of stills.
    Stills,
    /// One GIF.
    Gif,
    /// One picture.
    Still,
}

/// What is known of a source once it is open (its first frame has been decoded by then).
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct VideoInfo {
    /// The path or pattern it was opened by.
    pub path: PathBuf,
    /// What kind of source it is.
    pub kind: SourceKind,
    /// Width of the frames delivered, in pixels: after rotation and [`OpenOptions::max_size`](crate::OpenOptions::max_size).
    pub width: u32,
    /// Height of the frames delivered, in pixels.
    pub height: u32,
    /// Average frames per second as a fraction, where it is known.
    pub frame_rate: Option<(u32, u32)>,
    /// Frames in the whole source (not in the range asked for), where it says so.
    pub frames: Option<u64>,
    /// Duration of the whole source in seconds, where it is known.
    pub duration: Option<f64>,
    /// Shape of a displayed pixel, width to height; recorded, not applied.
    pub pixel_aspect: (u32, u32),
    /// Degrees clockwise by which the stored picture was turned for display: 0, 90, 180 or 270.
    pub rotation: u16,
    /// Whether the stored picture was also mirrored left to right, before it was turned.
    pub mirrored: bool,
    /// Name of the codec.
    pub codec: String,
    /// Name of the stored pixel format.
    pub pixel_format: String,
    /// Matrix that the stored colours were read with: `bt601`, `bt709`, `bt2020`, `rgb`, ….
    pub color_matrix: String,
    /// Range that the stored colours were read with: `limited` or `full`.
    pub color_range: String,
    /// Unit of the presentation times, in seconds, as a fraction.
    pub time_base: (u32, u32),
}
