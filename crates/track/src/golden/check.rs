//! Checking: the same clips and points tracked again, and how far everything moved.

use std::path::{Path, PathBuf};

use serde::Serialize;
use track_model::Precision;

use super::differences::{Differences, Worst, between};
use super::folder::{Staging, read_numbers};
use super::index::{Entry, Index, Recorded, SCHEMA};
use super::numbers::Numbers;
use super::record::{finite, put, recorded};
use super::tolerance::Tolerance;
use super::{Golden, source};
use crate::{Error, Queries, QueryPoint, Result, Tracker, Watch};

/// How to check. See [`check`].
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// The folder where the clips lie, if not where they were recorded.
    pub clips: Option<PathBuf>,
    /// What is allowed, if not what the folder says.
    pub tolerance: Option<Tolerance>,
}

/// What became of a clip, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Every number is the same to the last bit.
    Equal,
    /// Some moved, no further than allowed.
    Within,
    /// They moved further than allowed.
    Moved,
    /// The clip or its recorded numbers could not be read, or it could not be tracked.
    Unchecked,
}

/// One clip's part of a check.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClipCheck {
    /// What the folder calls it.
    pub name: String,
    /// Frames recorded.
    pub frames: usize,
    /// Points recorded.
    pub points: usize,
    /// What was found.
    pub outcome: Outcome,
    found: Option<Found>,
}

/// What was found on a clip.
#[derive(Debug)]
pub enum Outcome {
    /// It was tracked again.
    Compared {
        /// Equal, within or moved.
        verdict: Verdict,
        /// How far the numbers moved.
        differences: Differences,
        /// The points that moved furthest, each on its worst frame.
        worst: Vec<Worst>,
        /// What else is not as it was: the number of frames, their size or their pixels. A phrase each.
        notes: Vec<String>,
    },
    /// It could not be; every clip is tried all the same.
    Failed(Error),
}

/// What would be recorded now.
#[derive(Debug)]
struct Found {
    numbers: Numbers,
    clip: super::RecordedClip,
}

/// What a check found. Its text form is a table for people.
#[derive(Debug)]
#[non_exhaustive]
pub struct Check {
    /// What decided the recorded tracks.
    pub recorded: Recorded,
    /// What decided those of now.
    pub now: Recorded,
    /// The less exact of the two precisions: its tolerance holds.
    pub precision: Precision,
    /// What is allowed.
    pub tolerance: Tolerance,
    /// Every clip, in the order in which they were recorded.
    pub clips: Vec<ClipCheck>,
}

/// Something that decides tracks and is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// `weights`, `program`, `ffmpeg` …
    pub what: &'static str,
    /// As recorded.
    pub recorded: String,
    /// As it is now.
    pub now: String,
}

/// Tracks every clip of the folder again and compares.
///
/// A clip that cannot be checked does not end it: [`Outcome::Failed`] has the reason.
///
/// # Errors
/// [`Error::Cancelled`].
pub fn check(
    golden: &Golden,
    tracker: &Tracker,
    options: &CheckOptions,
    watch: &Watch<'_>,
) -> Result<Check> {
    let (precision, tolerance) = golden.index.tolerance(tracker.precision);
    let tolerance = options.tolerance.unwrap_or(tolerance);
    let mut clips = Vec::new();
    for entry in &golden.index.clips {
        let (outcome, found) = match compare(golden, entry, tracker, &tolerance, options, watch) {
            Ok((outcome, found)) => (outcome, Some(found)),
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(e) => (Outcome::Failed(e), None),
        };
        clips.push(ClipCheck {
            name: entry.name.clone(),
            frames: entry.frames,
            points: entry.points,
            outcome,
            found,
        });
    }
    Ok(Check {
        recorded: golden.index.recorded.clone(),
        now: recorded(tracker, &golden.folder),
        precision,
        tolerance,
        clips,
    })
}

fn compare(
    golden: &Golden,
    entry: &Entry,
    tracker: &Tracker,
    tolerance: &Tolerance,
    options: &CheckOptions,
    watch: &Watch<'_>,
) -> Result<(Outcome, Found)> {
    let old = read_numbers(&golden.folder, entry)?;
    let then = &entry.clip;
    let path = source::locate(&then.path, &golden.folder, options.clips.as_deref());
    let clip = source::open(then, &path)?;
    let frames_sha256 = source::frames_sha256(&clip, watch.cancel())?;
    let same_frames = then
        .frames_sha256
        .as_ref()
        .is_none_or(|s| *s == frames_sha256);
    if !same_frames && then.sha256.is_none() {
        // Stills have no checksum but that of their frames.
        return Err(source::changed(&path));
    }
    let mut notes = Vec::new();
    let size = (clip.width(), clip.height());
    if size != (then.width, then.height) {
        notes.push(format!(
            "its picture is {}×{} instead of {}×{}",
            size.0, size.1, then.width, then.height
        ));
    }
    let points = old.queries.chunks_exact(3);
    let queries = Queries::points(points.map(|q| QueryPoint::new(q[0], q[1], q[2])));
    let numbers = Numbers::of(&tracker.track(&clip, &queries, watch)?);
    if numbers.frames != old.frames {
        notes.push(format!(
            "it has {} frames instead of {}",
            numbers.frames, old.frames
        ));
    }
    let (differences, worst) = between(&old, &numbers);
    // Another number or size of frames is a change, however close the common ones are.
    let verdict = match differences.within(tolerance) && notes.is_empty() {
        true if differences.identical => Verdict::Equal,
        true => Verdict::Within,
        false => Verdict::Moved,
    };
    if !same_frames {
        notes.push("its decoded frames have other pixels".to_owned());
    }
    let clip = super::RecordedClip {
        path: source::seen_from(&golden.folder, &path),
        frames_sha256: Some(frames_sha256),
        width: size.0,
        height: size.1,
        ..then.clone()
    };
    let outcome = Outcome::Compared {
        verdict,
        differences,
        worst,
        notes,
    };
    Ok((outcome, Found { numbers, clip }))
}

impl ClipCheck {
    /// What became of the clip.
    pub fn verdict(&self) -> Verdict {
        match self.outcome {
            Outcome::Compared { verdict, .. } => verdict,
            Outcome::Failed(_) => Verdict::Unchecked,
        }
    }
}

impl Check {
    /// The worst verdict of all clips.
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.clips.iter().map(ClipCheck::verdict);
        verdicts.max().unwrap_or(Verdict::Unchecked)
    }

    /// Clips of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.clips.iter().filter(|c| c.verdict() == verdict).count()
    }

    /// The first clip that could not be checked, and why.
    pub fn failure(&self) -> Option<(&str, &Error)> {
        self.clips.iter().find_map(|clip| match &clip.outcome {
            Outcome::Failed(e) => Some((clip.name.as_str(), e)),
            Outcome::Compared { .. } => None,
        })
    }

    /// What decides tracks and is not what it was when they were recorded.
    pub fn changed(&self) -> Vec<Change> {
        let (then, now) = (&self.recorded, &self.now);
        let optional = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
        let mut pairs = vec![
            ("program", then.program.clone(), now.program.clone()),
            ("model", then.model.clone(), now.model.clone()),
        ];
        if then.weights.sha256 != now.weights.sha256 {
            let named = |r: &Recorded| {
                let short: String = r.weights.sha256.chars().take(12).collect();
                format!("{} {short}…", r.weights.name)
            };
            pairs.push(("weights", named(then), named(now)));
        }
        pairs.extend([
            ("precision", then.precision.clone(), now.precision.clone()),
            ("device", then.device.clone(), now.device.clone()),
        ]);
        // What was not known says nothing.
        if let (Some(then), Some(now)) = (&then.hardware, &now.hardware) {
            pairs.push(("hardware", then.clone(), now.clone()));
        }
        pairs.push((
            "resolution",
            then.resolution.clone(),
            now.resolution.clone(),
        ));
        pairs.push(("FFmpeg", optional(&then.ffmpeg), optional(&now.ffmpeg)));
        pairs
            .into_iter()
            .filter(|(_, recorded, now)| recorded != now)
            .map(|(what, recorded, now)| Change {
                what,
                recorded,
                now,
            })
            .collect()
    }

    /// Records what was found in place of what was recorded: the same clips, points and tolerances.
    ///
    /// # Errors
    /// A clip that was not checked, answers that are not finite, or a folder that cannot be written.
    pub fn accept(self, golden: &Golden) -> Result<Golden> {
        let folder: &Path = &golden.folder;
        if self.verdict() == Verdict::Unchecked {
            return Err(Error::Request(format!(
                "{}: nothing was recorded, because not every clip could be checked",
                folder.display()
            )));
        }
        let staging = Staging::new(folder)?;
        let mut entries = Vec::new();
        for ClipCheck { name, found, .. } in self.clips {
            let Some(Found { numbers, clip }) = found else {
                return Err(Error::Internal(format!(
                    "{name} was checked without numbers"
                )));
            };
            let numbers = finite(numbers, Path::new(&name), &self.now)?;
            entries.push(put(&staging, name, &numbers, clip, &self.now)?);
        }
        let index = Index {
            schema: SCHEMA.to_owned(),
            recorded: self.now,
            tolerances: golden.index.tolerances.clone(),
            clips: entries,
        };
        staging.finish(&index, Some(&golden.index))?;
        Golden::open(folder)
    }
}
