//! A GIF as a video: frames composed on its canvas, delays as times.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use gif::{ColorOutput, DecodeOptions, Decoder, DisposalMethod};

use crate::frame::{fit, resize_rgb};
use crate::reader::{OpenOptions, Source, Stamp};
use crate::{Error, Frame, SourceKind, VideoInfo};

/// Viewers show frames of 0 or 1 hundredths for a tenth of a second, and so do the tools that print times.
const SHORTEST_DELAY: u64 = 2;
const DEFAULT_DELAY: u64 = 10;

/// An open GIF.
pub(crate) struct GifSource {
    path: PathBuf,
    decoder: Decoder<BufReader<File>>,
    info: VideoInfo,
    size: (u32, u32),
    /// RGB canvas, `[height, width, 3]`.
    canvas: Vec<u8>,
    /// What is to be done to the canvas before the next frame.
    pending: Option<Disposal>,
    index: u64,
    /// Start of the next frame, in hundredths of a second.
    clock: u64,
    warnings: Vec<String>,
    ended: bool,
}

struct Disposal {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    /// RGB of the rectangle before the frame, or black where the frame asks for the background.
    restore: Vec<u8>,
}

/// Frames and hundredths of a second of a whole GIF.
struct Survey {
    frames: u64,
    total: u64,
    /// The delay of every frame if they share one.
    delay: Option<u64>,
    damage: Option<String>,
}

impl GifSource {
    pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let survey = survey(path)?;
        let decoder = decoder(path, false)?;
        let size = (u32::from(decoder.width()), u32::from(decoder.height()));
        if survey.frames == 0 || size.0 == 0 || size.1 == 0 {
            return Err(Error::NoFrames {
                path: path.to_path_buf(),
                hint: "the file is cut short or damaged".to_owned(),
            });
        }
        let (width, height) = fit(size, options.max_size);
        let rate = match survey.delay {
            Some(delay) => reduce(100, delay),
            None => reduce(survey.frames * 100, survey.total),
        };
        let info = VideoInfo {
            path: path.to_path_buf(),
            kind: SourceKind::Gif,
            width,
            height,
            frame_rate: Some(rate),
            frames: Some(survey.frames),
            duration: Some(survey.total as f64 / 100.0),
            pixel_aspect: (1, 1),
            rotation: 0,
            mirrored: false,
            codec: "gif".to_owned(),
            pixel_format: "pal8".to_owned(),
            color_matrix: "rgb".to_owned(),
            color_range: "full".to_owned(),
            time_base: (1, 100),
        };
        let mut source = Self {
            path: path.to_path_buf(),
            decoder,
            info,
            size,
            canvas: vec![0; size.0 as usize * size.1 as usize * 3],
            pending: None,
            index: 0,
            clock: 0,
            warnings: Vec::new(),
            ended: false,
        };
        if let Some(damage) = survey.damage {
            source.warn(format!(
                "{}: cut short or damaged after {} frames ({damage})",
                path.display(),
                survey.frames
            ));
        }
        Ok(source)
    }

    fn warn(&mut self, text: String) {
        tracing::warn!("{text}");
        self.warnings.push(text);
    }

    fn dispose(&mut self) {
        let Some(d) = self.pending.take() else { return };
        let stride = self.size.0 as usize * 3;
        for (row, saved) in d.restore.chunks(d.width * 3).take(d.height).enumerate() {
            let at = (d.top + row) * stride + d.left * 3;
            self.canvas[at..at + d.width * 3].copy_from_slice(saved);
        }
    }
}

impl Source for GifSource {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn advance(&mut self) -> Result<Option<Stamp>, Error> {
        if self.ended {
            return Ok(None);
        }
        self.dispose();
        let frame = match self.decoder.read_next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                self.ended = true;
                return Ok(None);
            }
            Err(e) => {
                self.ended = true;
                if self.index == 0 {
                    return Err(Error::decode(&self.path, e));
                }
                if self.warnings.is_empty() {
                    let text = format!(
                        "{}: damaged after {} frames ({e}); what follows is lost",
                        self.path.display(),
                        self.index
                    );
                    self.warn(text);
                }
                return Ok(None);
            }
        };
        let (cw, ch) = (self.size.0 as usize, self.size.1 as usize);
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        let full = usize::from(frame.width);
        // Frames may stick out of the canvas in broken files; only what lies on it is drawn.
        let width = full.min(cw.saturating_sub(left));
        let height = usize::from(frame.height).min(ch.saturating_sub(top));
        let rectangle = |canvas: &[u8]| {
            let mut saved = Vec::with_capacity(width * height * 3);
            for y in top..top + height {
                let at = (y * cw + left) * 3;
                saved.extend_from_slice(&canvas[at..at + width * 3]);
            }
            saved
        };
        let restore = match frame.dispose {
            DisposalMethod::Any | DisposalMethod::Keep => None,
            DisposalMethod::Background => Some(vec![0; width * height * 3]),
            DisposalMethod::Previous => Some(rectangle(&self.canvas)),
        };
        if width > 0 && height > 0 {
            for (row, pixels) in frame.buffer.chunks_exact(full * 4).take(height).enumerate() {
                let at = ((top + row) * cw + left) * 3;
                let target = self.canvas[at..at + width * 3].chunks_exact_mut(3);
                for (to, from) in target.zip(pixels.chunks_exact(4)) {
                    if from[3] != 0 {
                        to.copy_from_slice(&from[..3]);
                    }
                }
            }
            self.pending = restore.map(|restore| Disposal {
                left,
                top,
                width,
                height,
                restore,
            });
        }
        let stamp = Stamp {
            index: self.index,
            time: self.clock as f64 / 100.0,
        };
        self.index += 1;
        self.clock += delay(frame.delay);
        Ok(Some(stamp))
    }

    fn render(&mut self, stamp: Stamp) -> Result<Frame, Error> {
        let to = (self.info.width, self.info.height);
        Ok(Frame {
            index: stamp.index,
            time: stamp.time,
            width: to.0,
            height: to.1,
            data: resize_rgb(self.canvas.clone(), self.size, to),
        })
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn delay(hundredths: u16) -> u64 {
    match u64::from(hundredths) {
        short if short < SHORTEST_DELAY => DEFAULT_DELAY,
        delay => delay,
    }
}

fn decoder(path: &Path, skim: bool) -> Result<Decoder<BufReader<File>>, Error> {
    let file = File::open(path).map_err(|e| Error::reading(path, e))?;
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.skip_frame_decoding(skim);
    options
        .read_info(BufReader::new(file))
        .map_err(|e| Error::NotVideo {
            path: path.to_path_buf(),
            reason: format!("a GIF that is cut short or damaged ({e})"),
        })
}

/// Counts frames and delays without decompressing: a GIF does not say how many it has.
fn survey(path: &Path) -> Result<Survey, Error> {
    let mut decoder = decoder(path, true)?;
    let mut survey = Survey {
        frames: 0,
        total: 0,
        delay: None,
        damage: None,
    };
    loop {
        match decoder.next_frame_info() {
            Ok(Some(frame)) => {
                let delay = delay(frame.delay);
                survey.delay = match survey.delay {
                    None if survey.frames == 0 => Some(delay),
                    same => same.filter(|d| *d == delay),
                };
                survey.frames += 1;
                survey.total += delay;
            }
            Ok(None) => return Ok(survey),
            Err(e) => {
                survey.damage = Some(e.to_string());
                return Ok(survey);
            }
        }
    }
}

fn reduce(num: u64, den: u64) -> (u32, u32) {
    let (mut a, mut b) = (num, den);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let part = |v: u64| u32::try_from(v / a.max(1)).unwrap_or(u32::MAX);
    (part(num), part(den).max(1))
}
