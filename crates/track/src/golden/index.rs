//! `golden.json`: what a folder holds, what decided it, and what a check may find.

use std::path::Path;

use serde::{Deserialize, Serialize};
use track_model::{Precision, Resolution, Size};

use super::tolerance::{self, Tolerance, Tolerances};
use crate::error::os_reason;
use crate::{Error, Position, Result, Tracker, WeightsRecord, default_weights, run};

/// The name of the index in its folder.
pub(crate) const INDEX: &str = "golden.json";
/// The schema's name and version. The number grows when a field changes its meaning or goes away.
pub(crate) const SCHEMA: &str = "track-golden/1";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) schema: String,
    pub(crate) recorded: Recorded,
    pub(crate) tolerances: Tolerances,
    pub(crate) clips: Vec<Entry>,
}

/// What decided recorded tracks, apart from the clips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recorded {
    /// Name and version of this library.
    pub program: String,
    /// The model, such as `locotrack-small`.
    pub model: String,
    /// The weights: their file's name, or the name of the built-in ones, and their checksum.
    pub weights: WeightsRecord,
    /// Where the weights lie, from the folder; `None` for the built-in ones.
    pub weights_path: Option<String>,
    /// The arithmetic: `f32`, `tf32`, `f16` or `bf16`.
    pub precision: String,
    /// The device: `cpu`, or `cuda:0` and so on.
    pub device: String,
    /// The processor or the GPU, with its driver where it has one; `None` where that is not known.
    pub hardware: Option<String>,
    /// The picture that the model worked on: `model`, `clip` or `WIDTHxHEIGHT`.
    pub resolution: String,
    /// Version of the FFmpeg libraries, in a build that has them.
    pub ffmpeg: Option<String>,
}

/// A recorded clip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// What tables call it; no two of a folder are the same.
    pub name: String,
    /// The file of its numbers, in the folder.
    pub tracks: String,
    /// SHA-256 of that file.
    pub tracks_sha256: String,
    /// Number of frames, `T`.
    pub frames: usize,
    /// Number of points, `N`.
    pub points: usize,
    /// The clip.
    pub clip: RecordedClip,
}

/// Which frames were tracked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedClip {
    /// Where it lies, from the folder.
    pub path: String,
    /// SHA-256 of the file; `None` for a folder or a pattern of stills, whose frames are compared instead.
    pub sha256: Option<String>,
    /// SHA-256 of the decoded frames (RGB8, row by row); `None` where it was not recorded.
    pub frames_sha256: Option<String>,
    /// The first frame, as a frame or a time; `None` for the clip's first.
    pub start: Option<String>,
    /// The first frame behind the part, as a frame or a time; `None` for all.
    pub end: Option<String>,
    /// Width of the displayed picture in pixels.
    pub width: u32,
    /// Height of the displayed picture in pixels.
    pub height: u32,
}

impl Index {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(INDEX);
        let bytes = std::fs::read(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::input(
                folder,
                format!("expected golden outputs, found no {INDEX}; record some with track golden record"),
            ),
            _ => Error::input(&path, format!("cannot be read ({})", os_reason(&e))),
        })?;
        Self::parse(&bytes).map_err(|reason| Error::input(&path, reason))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        /// What any version has.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let unreadable = |e: serde_json::Error| format!("cannot be read as {SCHEMA} ({e})");
        let head: Head = serde_json::from_slice(bytes).map_err(unreadable)?;
        if head.schema != SCHEMA {
            return Err(format!(
                "expected schema {SCHEMA}, found {}; record again with this version",
                head.schema
            ));
        }
        let index: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        index.check()?;
        Ok(index)
    }

    /// Says what is wrong with a file that somebody wrote.
    fn check(&self) -> Result<(), String> {
        precision(&self.recorded.precision)?;
        resolution(&self.recorded.resolution)?;
        for (name, tolerance) in &self.tolerances {
            precision(name)?;
            tolerance.check().map_err(|e| format!("{name}: {e}"))?;
        }
        if self.clips.is_empty() {
            return Err("it lists no clip; record again".to_owned());
        }
        for (n, entry) in self.clips.iter().enumerate() {
            // A name that leads out of the folder is no name that was recorded.
            let plain = |name: &str| Path::new(name).file_name() == Some(name.as_ref());
            if !plain(&entry.tracks) {
                return Err(format!("'{}' is no file of the folder", entry.tracks));
            }
            if self.clips[..n].iter().any(|e| e.name == entry.name) {
                return Err(format!("two clips are called '{}'", entry.name));
            }
            entry.clip.range()?;
        }
        Ok(())
    }

    /// What is allowed when these tracks are compared with those of `now`, and the name of the precision that
    /// decides it: the less exact one.
    pub(crate) fn tolerance(&self, now: Precision) -> (Precision, Tolerance) {
        let recorded = precision(&self.recorded.precision).unwrap_or_default();
        let decides = tolerance::less_exact(recorded, now);
        let found = self.tolerances.get(decides.name());
        (decides, found.copied().unwrap_or(Tolerance::of(decides)))
    }
}

impl Recorded {
    /// What decides the tracks of `tracker`; `weights_path` is from the folder.
    pub(crate) fn of(tracker: &Tracker, weights_path: impl FnOnce(&str) -> String) -> Self {
        let weights = tracker.weights();
        let (weights, weights_path) = if weights.sha256 == default_weights().sha256 {
            (default_weights(), None)
        } else {
            let name = Path::new(&weights.name).file_name();
            let record = WeightsRecord {
                name: name.map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
                sha256: weights.sha256.clone(),
            };
            (record, Some(weights_path(&weights.name)))
        };
        Self {
            program: run::program(),
            model: tracker.model().name().to_owned(),
            weights,
            weights_path,
            precision: tracker.precision.name().to_owned(),
            device: tracker.device().to_owned(),
            hardware: hardware(tracker.device()),
            resolution: run::resolution(tracker.resolution),
            ffmpeg: track_video::ffmpeg_version(),
        }
    }
}

/// The processor's name, or the GPU's with the code that runs on it and the driver.
fn hardware(device: &str) -> Option<String> {
    match device.strip_prefix("cuda:") {
        None => Some(crate::bench::host::machine().processor),
        Some(number) => {
            let device = track_model::Device::cuda(number.parse().ok()?).ok()?;
            let info = device.info()?;
            Some(format!(
                "{} ({}, driver {})",
                info.name, info.code, info.driver
            ))
        }
    }
}

impl RecordedClip {
    /// The part of the clip that was tracked.
    pub(crate) fn range(&self) -> Result<(Option<Position>, Option<Position>), String> {
        let position = |text: &Option<String>| {
            let parsed = text.as_deref().map(str::parse).transpose();
            parsed.map_err(|e: track_video::Error| e.to_string())
        };
        Ok((position(&self.start)?, position(&self.end)?))
    }
}

pub(crate) fn precision(name: &str) -> Result<Precision, String> {
    name.parse()
        .map_err(|e: track_model::PrecisionError| e.to_string())
}

/// The inverse of the name in [`Recorded::resolution`].
pub(crate) fn resolution(name: &str) -> Result<Resolution, String> {
    let side = |text: &str| text.parse().ok().filter(|&n: &usize| n > 0);
    match name {
        "model" => Ok(Resolution::Model),
        "clip" => Ok(Resolution::Clip),
        other => other
            .split_once('x')
            .and_then(|(w, h)| {
                Some(Resolution::Custom(Size {
                    width: side(w)?,
                    height: side(h)?,
                }))
            })
            .ok_or_else(|| format!("'{other}' is no resolution; expected model, clip or 512x288")),
    }
}
