//! A benchmark's frames: decoded anew for every run, or made up once.

use std::io::Write;

use candle_core::{Device, Tensor};
use tempfile::NamedTempFile;
use track_model::Size;

use super::{BenchVideo, MODEL_SIZE};
use crate::error::os_reason;
use crate::{Clip, Error, Position, Result, Watch};

/// The clip that needs no file beside the program.
static SHIPPED: &[u8] = include_bytes!("../../../../assets/pedestrians_47f_256x256.mp4");
const SHIPPED_NAME: &str = "pedestrians_47f_256x256.mp4 (built in)";
/// Frames of the shipped clip, and as many made-up ones when nothing is said.
const SHIPPED_FRAMES: usize = 47;

/// Where a run's frames come from.
pub(super) enum Source {
    /// Decoded by every run.
    Clip {
        clip: Box<Clip>,
        name: String,
        /// What the clip is read from, while it is.
        _file: Option<NamedTempFile>,
    },
    /// u8 `[frames, height, width, 3]`.
    Synthetic(Tensor, Size),
}

impl Source {
    pub(super) fn open(
        video: &BenchVideo,
        size: Option<Size>,
        frames: Option<usize>,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let open = |path: &std::path::Path| {
            let mut options = Clip::options();
            if let Some(frames) = frames {
                options = options.end(Position::Frame(frames as u64));
            }
            options.open(path).map(Box::new)
        };
        match video {
            BenchVideo::File(path) => {
                let clip = open(path)?;
                Ok(Self::Clip {
                    name: format!("{} ({}×{})", path.display(), clip.width(), clip.height()),
                    clip,
                    _file: None,
                })
            }
            BenchVideo::Shipped if crate::ffmpeg_version().is_some() => {
                let file = unpack()?;
                Ok(Self::Clip {
                    clip: open(file.path())?,
                    name: SHIPPED_NAME.to_owned(),
                    _file: Some(file),
                })
            }
            BenchVideo::Shipped | BenchVideo::Synthetic => {
                if *video == BenchVideo::Shipped {
                    notes.push(
                        "this build has no FFmpeg to decode the built-in clip with, so made-up frames of its size are used"
                            .to_owned(),
                    );
                }
                let size = size.unwrap_or(MODEL_SIZE);
                let frames = synthetic(frames.unwrap_or(SHIPPED_FRAMES), size)?;
                Ok(Self::Synthetic(frames, size))
            }
        }
    }

    /// What reports call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Clip { name, .. } => name.clone(),
            Self::Synthetic(..) => "made-up frames".to_owned(),
        }
    }

    pub(super) fn is_synthetic(&self) -> bool {
        matches!(self, Self::Synthetic(..))
    }

    pub(super) fn size(&self) -> Size {
        match self {
            Self::Clip { clip, .. } => Size {
                width: clip.width() as usize,
                height: clip.height() as usize,
            },
            Self::Synthetic(_, size) => *size,
        }
    }

    /// Frames as far as they are known before they are read; a file may be wrong.
    pub(super) fn expected_frames(&self) -> usize {
        match self {
            Self::Clip { clip, .. } => clip.expected_frames().unwrap_or(1),
            Self::Synthetic(frames, _) => frames.dims()[0],
        }
    }

    /// Reads the clip once to know how many frames it has.
    ///
    /// # Errors
    /// Frames that cannot be read, fewer than `wanted`, or none.
    pub(super) fn count(&self, wanted: Option<usize>, watch: &Watch<'_>) -> Result<usize> {
        if let Self::Synthetic(frames, _) = self {
            return Ok(frames.dims()[0]);
        }
        let found = self.decode(watch)?.dims()[0];
        if let Some(wanted) = wanted
            && found < wanted
        {
            return Err(Error::Request(format!(
                "{} has {found} frames, so no {wanted} can be tracked; ask for at most {found}, or for made-up frames",
                self.name()
            )));
        }
        Ok(found)
    }

    /// All frames in memory: u8 `[frames, height, width, 3]`.
    ///
    /// # Errors
    /// Frames that cannot be read, none at all, or [`Error::Cancelled`].
    pub(super) fn decode(&self, watch: &Watch<'_>) -> Result<Tensor> {
        let clip = match self {
            Self::Synthetic(frames, _) => return Ok(frames.clone()),
            Self::Clip { clip, .. } => clip,
        };
        let Size { width, height } = self.size();
        let mut pixels = Vec::with_capacity(self.expected_frames() * width * height * 3);
        let mut count = 0;
        for frame in clip.frames()? {
            watch.cancel().check()?;
            pixels.extend_from_slice(&frame?.data);
            count += 1;
        }
        if count == 0 {
            return Err(Error::NoFrames { clip: self.name() });
        }
        Tensor::from_vec(pixels, (count, height, width, 3), &Device::Cpu)
            .map_err(|e| track_model::Error::from(e).into())
    }
}

/// The shipped clip as a file that is gone with the returned value.
fn unpack() -> Result<NamedTempFile> {
    let failed = |e: std::io::Error| {
        Error::output(
            &std::env::temp_dir(),
            format!(
                "the built-in clip is unpacked there: {}; free some space, or set TMPDIR",
                os_reason(&e)
            ),
        )
    };
    let mut file = tempfile::Builder::new()
        .prefix("track.")
        .suffix(".mp4")
        .tempfile()
        .map_err(failed)?;
    file.write_all(SHIPPED).map_err(failed)?;
    file.flush().map_err(failed)?;
    Ok(file)
}

/// A mosaic that moves by two pixels a frame: u8 `[frames, height, width, 3]`.
fn synthetic(frames: usize, size: Size) -> Result<Tensor> {
    let Size { width, height } = size;
    let mut pixels = Vec::with_capacity(frames * height * width * 3);
    for t in 0..frames {
        for y in 0..height {
            for x in 0..width {
                let cell = ((x + 2 * t) / 8) * 37 + ((y + t) / 8) * 91;
                pixels.extend([cell as u8, (cell * 5 + 50) as u8, (cell * 11 + 100) as u8]);
            }
        }
    }
    Tensor::from_vec(pixels, (frames, height, width, 3), &Device::Cpu)
        .map_err(|e| track_model::Error::from(e).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_clip_needs_no_file_and_without_ffmpeg_frames_are_made_up() {
        let mut notes = Vec::new();
        let source = Source::open(&BenchVideo::Shipped, None, None, &mut notes).unwrap();
        let watch = Watch::new();
        assert_eq!(source.count(None, &watch).unwrap(), 47);
        assert_eq!(source.decode(&watch).unwrap().dims(), [47, 256, 256, 3]);
        let decoded = crate::ffmpeg_version().is_some();
        assert_eq!(source.is_synthetic(), !decoded);
        assert_eq!(notes.is_empty(), decoded, "{notes:?}");
    }

    #[test]
    fn made_up_frames_have_the_size_that_was_asked_for_and_move() {
        let size = Size {
            width: 24,
            height: 8,
        };
        let open = |frames| Source::open(&BenchVideo::Synthetic, Some(size), frames, &mut vec![]);
        let frames = open(Some(2)).unwrap().decode(&Watch::new()).unwrap();
        assert_eq!(frames.dims(), [2, 8, 24, 3]);
        let frames: Vec<Vec<Vec<Vec<u8>>>> = (0..2)
            .map(|t| frames.get(t).unwrap().to_vec3().unwrap())
            .collect();
        assert_ne!(frames[0], frames[1]);
        assert_eq!(open(None).unwrap().expected_frames(), 47);
    }
}
