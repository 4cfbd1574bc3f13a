//! Clips whose frames an app hands over.

use track_video::Frame;
use track_video::raw::{RawPicture, convert};

use crate::{Clip, Error, Result};

/// Collects frames from an app's own decoder or camera, kept as RGB until the clip is dropped.
///
/// For long videos [`Clip::from_source`] delivers frames as they are needed and keeps none.
///
/// ```
/// use track::MemoryClip;
/// use track::raw::{PixelFormat, RawPicture};
///
/// // Rows of 64 pixels, four bytes each, at a distance of 320 bytes.
/// let pixels = vec![0_u8; 320 * 48];
/// let picture = RawPicture {
///     width: 64,
///     height: 48,
///     format: PixelFormat::Bgra8,
///     planes: &[(&pixels, 320)],
///     matrix: Default::default(),
///     range: Default::default(),
/// };
/// let mut memory = MemoryClip::new("camera", 30.0);
/// memory.push(&picture)?;
/// memory.push(&picture)?;
/// let clip = memory.into_clip()?;
/// assert_eq!((clip.width(), clip.height()), (64, 48));
/// # Ok::<(), track::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryClip {
    name: String,
    fps: f64,
    frames: Vec<Frame>,
}

impl MemoryClip {
    /// An empty collection. `name` is what messages and outputs call the clip, `fps` its frames per second.
    pub fn new(name: impl Into<String>, fps: f64) -> Self {
        Self {
            name: name.into(),
            fps,
            frames: Vec::new(),
        }
    }

    /// Appends a picture; its time follows from the frame rate.
    ///
    /// # Errors
    /// The description of the picture does not fit its bytes, or it is of another size than the first.
    pub fn push(&mut self, picture: &RawPicture<'_>) -> Result<()> {
        let time = self.frames.len() as f64 / self.fps;
        self.push_at(time, picture)
    }

    /// Appends a picture that is shown at `time` (seconds).
    ///
    /// # Errors
    /// As [`push`](Self::push), or a time that is not a number or not behind the last one.
    pub fn push_at(&mut self, time: f64, picture: &RawPicture<'_>) -> Result<()> {
        let index = self.frames.len() as u64;
        let frame = convert(picture, index, time)?;
        let bad = |reason: String| Error::Frame {
            clip: self.name.clone(),
            frame: index,
            reason,
        };
        if let Some(first) = self.frames.first()
            && (first.width, first.height) != (frame.width, frame.height)
        {
            return Err(bad(format!(
                "it is {}×{}, but the clip is {}×{}; all frames must have one size",
                frame.width, frame.height, first.width, first.height
            )));
        }
        let before = self.frames.last().map_or(f64::NEG_INFINITY, |f| f.time);
        if !time.is_finite() || time <= before {
            return Err(bad(format!(
                "its time is {time} s; give times in seconds that increase"
            )));
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Number of frames so far.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is no frame yet.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The clip.
    ///
    /// # Errors
    /// No frame was pushed, or the rate is not a positive number.
    pub fn into_clip(self) -> Result<Clip> {
        let size = self.frames.first().map_or((0, 0), |f| (f.width, f.height));
        Clip::from_frames(self.name, size, self.fps, self.frames)
    }
}

#[cfg(test)]
mod tests {
    use track_video::raw::PixelFormat;

    use super::*;
    use crate::{Queries, Tracker, Watch, fake};

    fn gray<'a>(width: u32, height: u32, planes: &'a [(&'a [u8], usize)]) -> RawPicture<'a> {
        RawPicture {
            width,
            height,
            format: PixelFormat::Gray8,
            planes,
            matrix: Default::default(),
            range: Default::default(),
        }
    }

    #[test]
    fn frames_with_a_stride_become_a_clip_with_its_own_times() {
        let bytes = [1, 2, 99, 3, 4];
        let planes = [(&bytes[..], 3)];
        let mut memory = MemoryClip::new("camera", 10.0);
        memory.push_at(0.25, &gray(2, 2, &planes)).unwrap();
        memory.push_at(0.5, &gray(2, 2, &planes)).unwrap();
        let clip = memory.into_clip().unwrap();
        let frame = clip.frames().unwrap().next().unwrap().unwrap();
        assert_eq!(frame.data, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
        let tracker = fake::tracker(&Tracker::builder());
        let tracks = tracker
            .track(&clip, &Queries::grid(1), &Watch::new())
            .unwrap();
        assert_eq!(tracks.times, [0.25, 0.5]);
        assert_eq!(tracks.provenance.clip.kind, "memory");
    }

    #[test]
    fn odd_frames_are_refused_by_number() {
        let bytes = [0; 9];
        let planes = [(&bytes[..], 3)];
        let mut memory = MemoryClip::new("camera", 10.0);
        memory.push(&gray(2, 2, &planes)).unwrap();
        let error = memory.push(&gray(3, 2, &planes)).unwrap_err();
        assert!(
            error.to_string().starts_with("frame 1 of camera"),
            "{error}"
        );
        let error = memory.push_at(0.0, &gray(2, 2, &planes)).unwrap_err();
        assert!(error.to_string().contains("increase"), "{error}");
        let short = [(&bytes[..2], 3)];
        assert!(memory.push(&gray(2, 2, &short)).is_err());
        assert_eq!(memory.len(), 1);
        assert!(MemoryClip::new("empty", 10.0).into_clip().is_err());
    }
}
