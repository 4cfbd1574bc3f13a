//! Where frames come from: a file, or the app itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use track_video::{Frame, FrameRange, OpenOptions, Position, Reader, SourceKind, VideoInfo};

use crate::{Error, Result};

/// Frames in order, delivered once each. What goes wrong is said in words.
pub type FrameIter = Box<dyn Iterator<Item = Result<Frame, String>> + Send>;

/// A video to track in. It holds no decoded frames: they are decoded while they are tracked, and once more
/// for an overlay.
///
/// ```no_run
/// let whole = track::Clip::open("street.mp4")?;
/// let part = track::Clip::options().start("2.5s".parse()?).end("4s".parse()?).open("street.mp4")?;
/// # Ok::<(), track::Error>(())
/// ```
#[derive(Clone)]
pub struct Clip {
    source: Source,
    video: VideoInfo,
    expected: Option<u64>,
    range: FrameRange,
}

#[derive(Clone)]
enum Source {
    File { path: PathBuf, options: OpenOptions },
    App(Arc<dyn Fn() -> FrameIter + Send + Sync>),
}

/// How to open a file. See [`Clip::options`].
#[derive(Debug, Clone, Default)]
pub struct ClipOptions {
    options: OpenOptions,
}

impl ClipOptions {
    /// The part to track: half open, from `start` up to and without `end`.
    #[must_use]
    pub fn range(mut self, range: FrameRange) -> Self {
        self.options.range = range;
        self
    }

    /// The first frame to track, by index or time. It becomes frame 0 of the clip.
    #[must_use]
    pub fn start(mut self, start: Position) -> Self {
        self.options.range.start = Some(start);
        self
    }

    /// The first frame behind the part to track, by index or time.
    #[must_use]
    pub fn end(mut self, end: Position) -> Self {
        self.options.range.end = Some(end);
        self
    }

    /// Frames per second of a folder of stills; 25 if not given. Other files carry their own times.
    #[must_use]
    pub fn stills_fps(mut self, fps: f64) -> Self {
        self.options.stills_fps = Some(fps);
        self
    }

    /// Opens a video file, a folder or pattern of stills, a GIF or a still.
    ///
    /// # Errors
    /// The path cannot be read, is no video, has no frame, or the range is empty.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Clip> {
        let path = path.as_ref();
        let reader = track_video::open(path, &self.options)?;
        Ok(Clip {
            video: reader.info().clone(),
            expected: reader.expected_frames(),
            range: self.options.range,
            source: Source::File {
                path: path.to_path_buf(),
                options: self.options.clone(),
            },
        })
    }
}

impl Clip {
    /// Opens a whole video file, a folder or pattern of stills, a GIF or a still.
    ///
    /// # Errors
    /// The path cannot be read, is no video, or has no frame.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a part of a file.
    pub fn options() -> ClipOptions {
        ClipOptions::default()
    }

    /// Frames that the app delivers as they are needed, so that none are stored.
    ///
    /// `name` is what messages and outputs call the clip, `width` and `height` are the frames' size in pixels,
    /// `fps` their rate. `frames` starts the delivery; it is called once to track and once more for an
    /// overlay, each time from the first frame. [`raw::convert`](crate::raw::convert) turns raw pixels into frames.
    ///
    /// ```
    /// use track::{Clip, Frame};
    /// let clip = Clip::from_source("rendered", (64, 48), 25.0, || {
    ///     (0..10).map(|n| {
    ///         let data = vec![n as u8; 64 * 48 * 3];
    ///         Ok(Frame { index: n, time: n as f64 / 25.0, width: 64, height: 48, data })
    ///     })
    /// })?;
    /// # Ok::<(), track::Error>(())
    /// ```
    ///
    /// # Errors
    /// A size of zero, or a rate that is not a positive number.
    pub fn from_source<F, I>(
        name: impl Into<String>,
        (width, height): (u32, u32),
        fps: f64,
        frames: F,
    ) -> Result<Self>
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: Iterator<Item = Result<Frame, String>> + Send + 'static,
    {
        let source = Source::App(Arc::new(move || Box::new(frames())));
        Self::from_app(name.into(), (width, height), fps, None, source)
    }

    /// A clip whose frames lie in memory.
    pub(crate) fn from_frames(
        name: String,
        size: (u32, u32),
        fps: f64,
        frames: Vec<Frame>,
    ) -> Result<Self> {
        if frames.is_empty() {
            return Err(Error::NoFrames { clip: name });
        }
        let count = frames.len() as u64;
        let frames: Arc<[Frame]> = frames.into();
        let source = Source::App(Arc::new(move || {
            let frames = Arc::clone(&frames);
            Box::new((0..frames.len()).map(move |n| Ok(frames[n].clone())))
        }));
        Self::from_app(name, size, fps, Some(count), source)
    }

    fn from_app(
        name: String,
        (width, height): (u32, u32),
        fps: f64,
        frames: Option<u64>,
        source: Source,
    ) -> Result<Self> {
        if width == 0 || height == 0 {
            return Err(Error::Request(format!(
                "{name} is {width}×{height} and has no pixels; give the frames' width and height"
            )));
        }
        if !(fps.is_finite() && (0.001..=1e6).contains(&fps)) {
            return Err(Error::Request(format!(
                "{name} has {fps} frames per second; give a rate from 0.001 to 1000000"
            )));
        }
        let video = VideoInfo {
            path: PathBuf::from(name),
            kind: SourceKind::Video,
            width,
            height,
            frame_rate: Some(fraction(fps)),
            frames,
            duration: frames.map(|n| n as f64 / fps),
            pixel_aspect: (1, 1),
            rotation: 0,
            mirrored: false,
            codec: "none".to_owned(),
            pixel_format: "rgb24".to_owned(),
            color_matrix: "rgb".to_owned(),
            color_range: "full".to_owned(),
            time_base: (1, 90_000),
        };
        Ok(Self {
            source,
            video,
            expected: frames,
            range: FrameRange::default(),
        })
    }

    /// Width of the displayed picture in pixels.
    pub fn width(&self) -> u32 {
        self.video.width
    }

    /// Height of the displayed picture in pixels.
    pub fn height(&self) -> u32 {
        self.video.height
    }

    /// How many frames the clip has, as far as that is known before they are read; a file may be wrong.
    pub fn expected_frames(&self) -> Option<usize> {
        self.expected.and_then(|n| usize::try_from(n).ok())
    }

    /// What is known of the source, as the decoder says it.
    pub fn video(&self) -> &VideoInfo {
        &self.video
    }

    /// What outputs record of the clip.
    pub fn info(&self) -> ClipInfo {
        let v = &self.video;
        let kind = match (&self.source, v.kind) {
            (Source::App(_), _) => "memory",
            (_, SourceKind::Video) => "video",
            (_, SourceKind::Stills) => "stills",
            (_, SourceKind::Gif) => "gif",
            (_, SourceKind::Still) => "still",
        };
        ClipInfo {
            path: v.path.display().to_string(),
            kind: kind.to_owned(),
            range: self.range.to_string(),
            width: v.width,
            height: v.height,
            frame_rate: v.frame_rate,
            duration: v.duration,
            pixel_aspect: v.pixel_aspect,
            rotation: v.rotation,
            mirrored: v.mirrored,
            codec: v.codec.clone(),
            pixel_format: v.pixel_format.clone(),
            color_matrix: v.color_matrix.clone(),
            color_range: v.color_range.clone(),
        }
    }

    /// What messages call the clip.
    pub(crate) fn name(&self) -> String {
        self.video.path.display().to_string()
    }

    /// Reads the clip from its first frame.
    ///
    /// # Errors
    /// The file cannot be opened (any more).
    pub fn frames(&self) -> Result<Frames> {
        let source = match &self.source {
            Source::File { path, options } => {
                Delivery::File(Box::new(track_video::open(path, options)?))
            }
            Source::App(start) => Delivery::App(start()),
        };
        Ok(Frames {
            source,
            clip: self.name(),
            size: (self.video.width, self.video.height),
            delivered: 0,
            done: false,
        })
    }
}

impl fmt::Debug for Clip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clip")
            .field("video", &self.video)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// A rate as a fraction in lowest terms, to a thousandth.
fn fraction(fps: f64) -> (u32, u32) {
    let (n, d) = ((fps * 1000.0).round() as u32, 1000);
    let (mut a, mut b) = (n, d);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (n / a, d / a)
}

/// The frames of a clip, one at a time; every one has the clip's size. The first error ends the iteration.
pub struct Frames {
    source: Delivery,
    clip: String,
    size: (u32, u32),
    delivered: u64,
    done: bool,
}

enum Delivery {
    File(Box<Reader>),
    App(FrameIter),
}

impl Frames {
    /// What was found wrong so far without being fatal. Complete when the iteration has ended.
    pub fn warnings(&self) -> &[String] {
        match &self.source {
            Delivery::File(reader) => reader.warnings(),
            Delivery::App(_) => &[],
        }
    }

    fn read(&mut self) -> Result<Option<Frame>> {
        let frame = match &mut self.source {
            Delivery::File(reader) => reader.next().transpose()?,
            Delivery::App(frames) => frames.next().transpose().map_err(|reason| Error::Source {
                clip: self.clip.clone(),
                frame: self.delivered,
                reason,
            })?,
        };
        let Some(frame) = frame else { return Ok(None) };
        let (width, height) = self.size;
        let bad = |reason: String| Error::Frame {
            clip: self.clip.clone(),
            frame: self.delivered,
            reason,
        };
        if (frame.width, frame.height) != self.size {
            return Err(bad(format!(
                "it is {}×{}, but the clip is {width}×{height}; all frames must have one size",
                frame.width, frame.height
            )));
        }
        let bytes = width as usize * height as usize * 3;
        if frame.data.len() != bytes {
            return Err(bad(format!(
                "{width}×{height} RGB takes {bytes} bytes, but it has {}; give tight rows",
                frame.data.len()
            )));
        }
        self.delivered += 1;
        Ok(Some(frame))
    }
}

impl Iterator for Frames {
    type Item = Result<Frame>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.read().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames")
            .field("clip", &self.clip)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// What outputs record of a clip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClipInfo {
    /// The path it was opened by, or the name that the app gave it.
    pub path: String,
    /// `video`, `stills`, `gif`, `still` or `memory`.
    pub kind: String,
    /// The part that was tracked, as `start..end`.
    pub range: String,
    /// Width of the displayed picture in pixels.
    pub width: u32,
    /// Height of the displayed picture in pixels.
    pub height: u32,
    /// Average frames per second as a fraction, where it is known.
    pub frame_rate: Option<(u32, u32)>,
    /// Duration of the whole source in seconds, where it is known.
    pub duration: Option<f64>,
    /// Shape of a displayed pixel, width to height; recorded, not applied.
    pub pixel_aspect: (u32, u32),
    /// Degrees clockwise by which stored pictures were turned for display.
    pub rotation: u16,
    /// Whether stored pictures were also mirrored.
    pub mirrored: bool,
    /// Name of the codec.
    pub codec: String,
    /// Name of the stored pixel format.
    pub pixel_format: String,
    /// Matrix that stored colours were read with.
    pub color_matrix: String,
    /// Range that stored colours were read with.
    pub color_range: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(n: u64, width: u32) -> Frame {
        Frame {
            index: n,
            time: n as f64,
            width,
            height: 2,
            data: vec![0; width as usize * 6],
        }
    }

    #[test]
    fn an_apps_frames_are_delivered_again_and_checked() {
        let widths = [4, 4, 5];
        let clip = Clip::from_source("app", (4, 2), 10.0, move || {
            (0..3).map(move |n| Ok(frame(n, widths[n as usize])))
        })
        .unwrap();
        for _ in 0..2 {
            let mut frames = clip.frames().unwrap();
            assert_eq!(frames.next().unwrap().unwrap().index, 0);
            assert_eq!(frames.next().unwrap().unwrap().index, 1);
            let error = frames.next().unwrap().unwrap_err().to_string();
            assert_eq!(
                error,
                "frame 2 of app is unusable: it is 5×2, but the clip is 4×2; all frames must have one size"
            );
            assert!(frames.next().is_none());
        }
    }

    #[test]
    fn an_apps_failure_names_the_frame() {
        let clip = Clip::from_source("app", (4, 2), 10.0, || {
            [Ok(frame(0, 4)), Err("camera unplugged".to_owned())].into_iter()
        })
        .unwrap();
        let error = clip.frames().unwrap().last().unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "frame 1 of app could not be read: camera unplugged"
        );
    }

    #[test]
    fn rates_are_fractions_in_lowest_terms() {
        assert_eq!(
            [25.0, 29.97, 0.5].map(fraction),
            [(25, 1), (2997, 100), (1, 2)]
        );
    }

    #[test]
    fn no_pixels_no_rate_and_no_frames_are_refused() {
        let none = std::iter::empty;
        assert!(Clip::from_source("a", (0, 2), 10.0, none).is_err());
        assert!(Clip::from_source("a", (2, 2), 0.0, none).is_err());
        assert!(Clip::from_source("a", (2, 2), f64::NAN, none).is_err());
        let error = Clip::from_frames("a".into(), (2, 2), 1.0, vec![]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a has no frames; give a clip with at least one"
        );
    }
}
