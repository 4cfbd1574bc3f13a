//! The tracks drawn onto their video.

use std::path::Path;

use track_video::{Overlay, OverlayOptions, OverlayPoint, OverlayWriter, WriterOptions};

use crate::{Clip, Error, Result, Stage, Status, Tracks, Watch};

/// How an overlay is drawn and written.
#[derive(Debug, Clone, Default)]
pub struct OverlayStyle {
    /// Trails, size of the points, enlargement of small pictures.
    pub drawing: OverlayOptions,
    /// The contact sheet's size, and where times start.
    pub writing: WriterOptions,
}

impl Tracks {
    /// Draws the tracks onto the frames of `clip`, which is decoded once more, and writes them in the form
    /// that the extension asks for: a video (`.mp4`, `.mov`, `.mkv`) or a `.gif` with exactly the clip's frames
    /// and times, or a contact sheet (`.png`). The file appears under its name only when it is complete.
    ///
    /// # Errors
    /// A clip that cannot be read or is not the one that was tracked, a path that cannot be written, an encoder
    /// that fails, or [`Error::Cancelled`].
    pub fn write_overlay(
        &self,
        clip: &Clip,
        path: impl AsRef<Path>,
        style: &OverlayStyle,
        watch: &Watch<'_>,
    ) -> Result<()> {
        let path = path.as_ref();
        let mut writer = OverlayWriter::create(path, clip.video(), &style.writing)?;
        let starts: Vec<_> = self.queries.iter().map(|q| (q.x, q.y)).collect();
        let mut overlay = Overlay::new(&starts, clip.width(), clip.height(), &style.drawing);
        let mut done = 0;
        for frame in clip.frames()? {
            watch.cancel().check()?;
            let mut frame = frame?;
            if self.frame_indices.get(done) != Some(&frame.index) {
                return Err(changed(clip, self.frames()));
            }
            overlay.draw(&mut frame, &self.overlay_points(done));
            writer.push(&frame)?;
            done += 1;
            watch.report(Stage::Overlay, done, Some(self.frames()));
        }
        if done != self.frames() {
            return Err(changed(clip, self.frames()));
        }
        watch.cancel().check()?;
        writer.finish()?;
        Ok(())
    }

    fn overlay_points(&self, frame: usize) -> Vec<OverlayPoint> {
        (0..self.points())
            .map(|n| OverlayPoint {
                x: self.positions[[frame, n, 0]],
                y: self.positions[[frame, n, 1]],
                visible: self.visible[[frame, n]],
                tracked: self.status[[frame, n]] != Status::NotTracked,
            })
            .collect()
    }
}

/// Refuses a path that no overlay of `clip` could be written to, before any work is done for it. Leaves
/// nothing behind.
///
/// # Errors
/// An unknown extension, a missing or unwritable folder, or a path that is a folder.
pub fn check_overlay(clip: &Clip, path: &Path) -> Result<()> {
    OverlayWriter::create(path, clip.video(), &WriterOptions::default())?;
    Ok(())
}

fn changed(clip: &Clip, frames: usize) -> Error {
    Error::Request(format!(
        "{} does not have the {frames} frames that were tracked; draw onto the same clip, opened with the same range",
        clip.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cancel, Frame, Queries, Tracker, fake};

    fn clip(frames: u64) -> Clip {
        Clip::from_source("clip", (32, 24), 10.0, move || {
            (0..frames).map(|n| {
                Ok(Frame {
                    index: n,
                    time: n as f64 / 10.0,
                    width: 32,
                    height: 24,
                    data: vec![100; 32 * 24 * 3],
                })
            })
        })
        .unwrap()
    }

    #[test]
    fn a_sheet_is_written_and_another_clip_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.png");
        let tracker = fake::tracker(&Tracker::builder());
        let tracks = tracker
            .track(&clip(3), &Queries::grid(2), &Watch::new())
            .unwrap();
        let style = OverlayStyle::default();
        for frames in [2, 4] {
            let error = tracks
                .write_overlay(&clip(frames), &path, &style, &Watch::new())
                .unwrap_err();
            assert!(error.to_string().contains("the 3 frames"), "{error}");
        }
        let cancel = Cancel::new();
        cancel.cancel();
        let watch = Watch::new().cancelled_by(&cancel);
        let error = tracks.write_overlay(&clip(3), &path, &style, &watch);
        assert!(matches!(error, Err(Error::Cancelled)));
        check_overlay(&clip(3), &path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        tracks
            .write_overlay(&clip(3), &path, &style, &Watch::new())
            .unwrap();
        assert!(std::fs::read(&path).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn paths_without_a_form_are_refused() {
        let error = check_overlay(&clip(1), Path::new("a.webm")).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Usage);
        assert!(error.to_string().contains(".mp4"), "{error}");
    }
}
