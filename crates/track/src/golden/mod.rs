//! Golden outputs: what clips gave once, and how far they moved since.
//!
//! An app's own CI records what its clips give, and later learns what moved on another GPU, driver, precision or
//! version, and by how much.
//!
//! ```no_run
//! use std::path::Path;
//! use track::golden::{self, CheckOptions, Golden, RecordOptions};
//! use track::{Queries, Tracker, Watch};
//!
//! let (clips, folder) = (["street.mp4".into()], Path::new("goldens"));
//! let tracker = Tracker::builder().build()?;
//! golden::record(&tracker, &clips, &Queries::grid(10), folder, &RecordOptions::default(), &Watch::new())?;
//!
//! let recorded = Golden::open(folder)?;
//! let tracker = recorded.builder().build()?;
//! let check = golden::check(&recorded, &tracker, &CheckOptions::default(), &Watch::new())?;
//! print!("{check}");
//! assert!(check.verdict() <= golden::Verdict::Within);
//! # Ok::<(), track::Error>(())
//! ```
//!
//! A folder holds `golden.json` (schema `track-golden/1`: what decided the tracks, the clips with their checksums, the
//! tolerances) and one safetensors file a clip (`positions`, `occlusion`, `expected_dist`, `visible`, `queries`). Clips
//! stay where they are; their paths are kept as seen from the folder.

mod check;
mod differences;
mod folder;
mod index;
mod numbers;
mod record;
mod source;
mod table;
mod tolerance;

use std::path::{Path, PathBuf};

pub use check::{Change, Check, CheckOptions, ClipCheck, Outcome, Verdict, check};
pub use differences::{Differences, Worst};
use index::Index;
pub use index::{Entry, Recorded, RecordedClip};
pub use record::{RecordOptions, record};
pub use tolerance::{Tolerance, Tolerances};
use track_model::Precision;

use crate::{Result, Tracker, TrackerBuilder, Weights};

/// A folder of goldens.
#[derive(Debug, Clone)]
pub struct Golden {
    folder: PathBuf,
    index: Index,
}

impl Golden {
    /// Opens a folder. The numbers themselves are read, and held to their checksums, clip by clip.
    ///
    /// # Errors
    /// A folder without `golden.json`, or one whose `golden.json` cannot be read, is of another schema or makes no
    /// sense.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        Ok(Self {
            index: Index::read(folder)?,
            folder: folder.to_path_buf(),
        })
    }

    /// What decided the recorded tracks.
    pub fn recorded(&self) -> &Recorded {
        &self.index.recorded
    }

    /// The clips, in the order in which they were recorded.
    pub fn clips(&self) -> &[Entry] {
        &self.index.clips
    }

    /// What may move when tracks computed in `precision` are compared with these.
    pub fn tolerance(&self, precision: Precision) -> Tolerance {
        self.index.tolerance(precision).1
    }

    /// A tracker as recorded: the same weights, precision and resolution. The device is left to choose.
    pub fn builder(&self) -> TrackerBuilder {
        let recorded = self.recorded();
        // Both were checked when the index was read.
        let precision = index::precision(&recorded.precision).unwrap_or_default();
        let resolution = index::resolution(&recorded.resolution).unwrap_or_default();
        let weights = match &recorded.weights_path {
            None => Weights::Default,
            Some(path) => Weights::File(self.folder.join(path)),
        };
        Tracker::builder()
            .weights(weights)
            .precision(precision)
            .resolution(resolution)
    }
}

#[cfg(test)]
mod tests;
