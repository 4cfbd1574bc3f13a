//! Frames as a GIF that loops.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use gif::{Encoder, Frame as Coded, Repeat};
use tempfile::NamedTempFile;

use super::Timing;
use crate::{Error, Frame};

/// Least hundredths of a second between frames: viewers slow anything shorter down to ten.
const SHORTEST_DELAY: i64 = 2;
/// Trade of speed for palette quality, 1 (best) to 30.
const PALETTE_SPEED: i32 = 8;

/// A GIF being written.
pub(super) struct GifWriter {
    path: PathBuf,
    encoder: Encoder<BufWriter<File>>,
    size: (u16, u16),
    /// The last frame and its start in hundredths of a second; it waits for the next one, which ends it.
    waiting: Option<(Coded<'static>, i64)>,
    delay: i64,
}

impl GifWriter {
    pub(super) fn create(
        file: &NamedTempFile,
        path: &Path,
        size: (u32, u32),
        timing: &Timing,
    ) -> Result<Self, Error> {
        let side = |v: u32| {
            u16::try_from(v).map_err(|_| {
                Error::encode(
                    path,
                    format!("a GIF is at most 65535 pixels wide and high, found {v}; write a video or use smaller frames"),
                )
            })
        };
        let size = (side(size.0)?, side(size.1)?);
        let handle = file.reopen().map_err(|e| Error::output(path, e))?;
        let mut encoder = Encoder::new(BufWriter::new(handle), size.0, size.1, &[])
            .map_err(|e| Error::encode(path, e))?;
        encoder
            .set_repeat(Repeat::Infinite)
            .map_err(|e| Error::encode(path, e))?;
        let delay = 100.0 * f64::from(timing.rate.1) / f64::from(timing.rate.0);
        Ok(Self {
            path: path.to_path_buf(),
            encoder,
            size,
            waiting: None,
            delay: (delay.round() as i64).max(SHORTEST_DELAY),
        })
    }

    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), Error> {
        let mut start = (frame.time * 100.0).round().clamp(-1e12, 1e12) as i64;
        if let Some((before, began)) = self.waiting.take() {
            start = start.max(began + SHORTEST_DELAY);
            self.delay = start - began;
            self.write(before)?;
        }
        let coded = Coded::from_rgb_speed(self.size.0, self.size.1, &frame.data, PALETTE_SPEED);
        self.waiting = Some((coded, start));
        Ok(())
    }

    fn write(&mut self, mut frame: Coded<'static>) -> Result<(), Error> {
        frame.delay = u16::try_from(self.delay).unwrap_or(u16::MAX);
        self.encoder
            .write_frame(&frame)
            .map_err(|e| Error::encode(&self.path, e))
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        if let Some((last, _)) = self.waiting.take() {
            self.write(last)?;
        }
        let path = self.path;
        self.encoder
            .into_inner()
            .map_err(|e| Error::output(&path, e))?
            .into_inner()
            .map(drop)
            .map_err(|e| Error::output(&path, e.error()))
    }
}
