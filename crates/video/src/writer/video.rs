//! Times of frames as ticks of a video file.

use std::path::Path;

use super::Timing;
use crate::ffmpeg::{VideoEncoder, VideoSpec};
use crate::{Error, Frame};

/// A video file being written.
pub(super) struct VideoWriter {
    encoder: VideoEncoder,
    /// Ticks per second.
    ticks: f64,
    from_zero: bool,
    shift: Option<i64>,
    last: i64,
}

impl VideoWriter {
    pub(super) fn create(
        file: &Path,
        shown: &Path,
        container: &'static str,
        size: (u32, u32),
        timing: &Timing,
        from_zero: bool,
    ) -> Result<Self, Error> {
        let spec = VideoSpec {
            container,
            size,
            time_base: timing.time_base,
            rate: timing.rate,
            pixel_aspect: timing.pixel_aspect,
        };
        Ok(Self {
            encoder: VideoEncoder::create(file, shown, &spec)?,
            ticks: f64::from(timing.time_base.1) / f64::from(timing.time_base.0),
            from_zero,
            shift: None,
            last: i64::MIN,
        })
    }

    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), Error> {
        // Bounded so that no time, however odd, overflows a container's arithmetic.
        let at = (frame.time * self.ticks).round().clamp(-1e15, 1e15) as i64;
        let shift = *self
            .shift
            .get_or_insert(if self.from_zero { -at } else { (-at).max(0) });
        let at = (at + shift).max(self.last.saturating_add(1));
        self.last = at;
        self.encoder.push(&frame.data, at)
    }

    pub(super) fn finish(self) -> Result<(), Error> {
        self.encoder.finish()
    }
}
