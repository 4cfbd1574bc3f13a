//! What a run did, for people and for machines.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use track::{Provenance, Tracks};

const SCHEMA: &str = "track-summary/1";

/// What `--json` prints. Times are measured, everything else is as in the outputs.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    schema: &'static str,
    points: usize,
    frames: usize,
    width: u32,
    height: u32,
    /// From the first frame to the last, in seconds of the video.
    clip_seconds: f64,
    visible_share: f64,
    /// Loading, tracking and writing, in seconds.
    elapsed_seconds: f64,
    track_seconds: f64,
    outputs: Vec<String>,
    overlays: Vec<String>,
    warnings: &'a [String],
    provenance: &'a Provenance,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(
        tracks: &'a Tracks,
        outputs: &'a [PathBuf],
        overlays: &'a [PathBuf],
        tracking: Duration,
        all: Duration,
    ) -> Self {
        let ends = tracks.times.first().zip(tracks.times.last());
        Self {
            schema: SCHEMA,
            points: tracks.points(),
            frames: tracks.frames(),
            width: tracks.provenance.clip.width,
            height: tracks.provenance.clip.height,
            clip_seconds: ends.map_or(0.0, |(first, last)| last - first),
            visible_share: tracks.visible_share(),
            elapsed_seconds: all.as_secs_f64(),
            track_seconds: tracking.as_secs_f64(),
            outputs: named(outputs),
            overlays: named(overlays),
            warnings: &tracks.warnings,
            provenance: &tracks.provenance,
        }
    }

    /// A few lines for people.
    pub(crate) fn text(&self) -> String {
        let provenance = self.provenance;
        let mut text = format!(
            "{} on {} of {}×{} ({:.1} s), {:.1} % visible\n",
            counted(self.points, "point"),
            counted(self.frames, "frame"),
            self.width,
            self.height,
            self.clip_seconds,
            100.0 * self.visible_share
        );
        let _ = writeln!(
            text,
            "{} in {} on {}: {:.1} s tracking, {:.1} s in all",
            provenance.model,
            provenance.precision,
            provenance.device,
            self.track_seconds,
            self.elapsed_seconds
        );
        for path in &self.outputs {
            let _ = writeln!(text, "tracks   {path}");
        }
        for path in &self.overlays {
            let _ = writeln!(text, "overlay  {path}");
        }
        text
    }
}

/// Paths as people read them: a name that is no UTF-8 must not fail a run at its end.
fn named(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|p| p.display().to_string()).collect()
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
