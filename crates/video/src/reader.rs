//! Opening a source of frames, whatever it is, and reading the part that was asked for.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::gif::GifSource;
use crate::stills::StillsSource;
use crate::{Error, Frame, FrameRange, SourceKind, VideoInfo};

/// How to open a source.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Which frames to deliver; everything by default.
    pub range: FrameRange,
    /// Largest width and height of the frames, for previews; aspect kept, never enlarged. In pixels.
    pub max_size: Option<(u32, u32)>,
    /// Frames per second of stills, 25 by default. Other sources carry their own times.
    pub stills_fps: Option<f64>,
}

/// Index and presentation time (seconds) of a frame that was decoded but perhaps not converted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) index: u64,
    pub(crate) time: f64,
}

/// Where frames come from. Decoding and conversion are two steps so that frames in front of a range cost no conversion.
pub(crate) trait Source: Send {
    fn info(&self) -> &VideoInfo;
    /// Decodes the next frame; `None` behind the last.
    fn advance(&mut self) -> Result<Option<Stamp>, Error>;
    /// Converts the frame that `advance` decoded.
    fn render(&mut self, stamp: Stamp) -> Result<Frame, Error>;
    /// What was found wrong so far without being fatal.
    fn warnings(&self) -> &[String];
}

/// An open source: an iterator over its frames, decoded one at a time.
///
/// The first error ends the iteration. Damage that can be decoded around ends up in [`Reader::warnings`].
pub struct Reader {
    source: Box<dyn Source>,
    range: FrameRange,
    delivered: u64,
    started: bool,
    done: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("info", self.source.info())
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// Opens a video file, a folder of stills, a pattern of stills (`shots/*.png`), a GIF or a still.
///
/// The first frame is decoded here, so that a file without any is refused at once.
///
/// # Errors
/// The path does not exist or cannot be read, is not a video, has no video stream or no frame, or the range is empty.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Reader, Error> {
    options.range.check()?;
    if let Some((w, h)) = options.max_size
        && (w == 0 || h == 0)
    {
        return Err(Error::Pixels(format!(
            "the largest size {w}x{h} has no pixels; give at least 1x1"
        )));
    }
    let source = source(path, options)?;
    Ok(Reader {
        source,
        range: options.range,
        delivered: 0,
        started: false,
        done: false,
    })
}

fn source(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>, Error> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && is_pattern(path) => {
            return Ok(Box::new(StillsSource::pattern(path, options)?));
        }
        Err(e) => return Err(Error::reading(path, e)),
    };
    if metadata.is_dir() {
        return Ok(Box::new(StillsSource::folder(path, options)?));
    }
    if metadata.is_file() {
        let head = head(path)?;
        if head.is_empty() {
            return Err(Error::NotVideo {
                path: path.to_path_buf(),
                reason: "an empty file (0 bytes); copy or export it again".to_owned(),
            });
        }
        if head.starts_with(b"GIF8") {
            return Ok(Box::new(GifSource::open(path, options)?));
        }
        if StillsSource::is_still(path, &head) {
            return Ok(Box::new(StillsSource::single(path, options)?));
        }
    }
    video(path, options)
}

#[cfg(feature = "ffmpeg")]
fn video(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>, Error> {
    Ok(Box::new(crate::ffmpeg::VideoSource::open(path, options)?))
}

#[cfg(not(feature = "ffmpeg"))]
fn video(path: &Path, _options: &OpenOptions) -> Result<Box<dyn Source>, Error> {
    Err(Error::Unsupported {
        path: path.to_path_buf(),
        reason: "this build has no FFmpeg and reads only stills and GIFs; build it with the feature `ffmpeg`, or give a folder of stills"
            .to_owned(),
    })
}

fn is_pattern(path: &Path) -> bool {
    path.to_str().is_some_and(|p| p.contains(['*', '?', '[']))
}

/// The first bytes of a file, enough to know a picture by.
fn head(path: &Path) -> Result<Vec<u8>, Error> {
    let mut head = Vec::with_capacity(32);
    std::fs::File::open(path)
        .and_then(|file| file.take(32).read_to_end(&mut head))
        .map_err(|e| Error::reading(path, e))?;
    Ok(head)
}

impl Reader {
    /// What is known of the source.
    pub fn info(&self) -> &VideoInfo {
        self.source.info()
    }

    /// What was found wrong so far without being fatal: frames lost, packets that could not be decoded.
    /// Complete only when the iteration has ended. Each is also logged through `tracing` as it is found.
    pub fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    /// How many frames the range holds, as far as that is known before they are read.
    pub fn expected_frames(&self) -> Option<u64> {
        use crate::Position;
        let info = self.info();
        let rate = info.frame_rate.filter(|r| r.0 > 0 && r.1 > 0);
        let place = |p: Position| match p {
            Position::Frame(at) => Some(at),
            Position::Time(at) => {
                rate.map(|r| (at * f64::from(r.0) / f64::from(r.1)).ceil().max(0.0) as u64)
            }
        };
        let start = match self.range.start {
            Some(p) => place(p)?,
            None => 0,
        };
        let end = match (self.range.end, info.frames) {
            (Some(p), Some(frames)) => place(p)?.min(frames),
            (Some(p), None) => place(p)?,
            (None, frames) => frames?,
        };
        Some(end.saturating_sub(start))
    }

    fn read(&mut self) -> Result<Option<Frame>, Error> {
        let mut seen: Option<Stamp> = None;
        while let Some(stamp) = self.source.advance()? {
            if let Some(end) = self.range.end
                && end.reached(stamp.index, stamp.time)
            {
                seen = seen.or(Some(stamp));
                break;
            }
            // Latched: times that step back in a broken file must not close a range that has begun.
            self.started = self.started
                || self
                    .range
                    .start
                    .is_none_or(|start| start.reached(stamp.index, stamp.time));
            if self.started {
                self.delivered += 1;
                return self.source.render(stamp).map(Some);
            }
            seen = Some(stamp);
        }
        if self.delivered == 0 {
            let name: PathBuf = self.info().path.clone();
            return Err(match seen {
                Some(last) => Error::EmptyRange {
                    range: self.range.to_string(),
                    found: format!(
                        " of {} (read up to frame {} at {:.3} s)",
                        name.display(),
                        last.index,
                        last.time
                    ),
                },
                None => Error::NoFrames {
                    path: name,
                    hint: "the file may be damaged".to_owned(),
                },
            });
        }
        Ok(None)
    }
}

impl Iterator for Reader {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.read().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Frames per second as a fraction, the NTSC rates (23.976, 29.97, …) as multiples of 1000/1001.
pub(crate) fn rate_fraction(fps: f64) -> Option<(u32, u32)> {
    if !(0.001..=1_000_000.0).contains(&fps) {
        return None;
    }
    let whole = fps.round();
    let ntsc = (fps * 1.001).round();
    Some(if (fps - whole).abs() < 1e-9 {
        (whole as u32, 1)
    } else if (fps * 1.001 - ntsc).abs() < 1e-3 {
        (ntsc as u32 * 1000, 1001)
    } else {
        ((fps * 1000.0).round() as u32, 1000)
    })
}

/// The kind of source that a set of stills is.
pub(crate) fn stills_kind(count: usize, named: bool) -> SourceKind {
    if count == 1 && named {
        SourceKind::Still
    } else {
        SourceKind::Stills
    }
}
