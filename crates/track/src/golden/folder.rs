//! A folder of goldens on disk: read as a whole, written as a whole.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::index::{Entry, INDEX, Index};
use super::numbers::Numbers;
use crate::error::os_reason;
use crate::tracker::hex;
use crate::{Error, Result};

/// Refuses a folder that goldens cannot be recorded into: one that holds some already, unless they are to be
/// replaced; a file; a place where nothing can be created. Returns what is to be replaced, where it can be read.
pub(super) fn check_target(folder: &Path, replace: bool) -> Result<Option<Index>> {
    if folder.exists() && !folder.is_dir() {
        return Err(Error::output(
            folder,
            "it is a file; give the name of a folder",
        ));
    }
    if !folder.join(INDEX).exists() {
        return Ok(None);
    }
    if !replace {
        return Err(Error::output(
            folder,
            "it holds golden outputs already; give another folder, or --replace to record them anew",
        ));
    }
    match Index::read(folder) {
        Ok(index) => Ok(Some(index)),
        Err(e) => {
            tracing::warn!("{e}; its tolerances are not kept");
            Ok(None)
        }
    }
}

/// Files being collected out of sight, to appear in their folder together.
#[derive(Debug)]
pub(super) struct Staging {
    folder: PathBuf,
    dir: TempDir,
    /// The folder does not exist yet: it appears by one rename.
    fresh: bool,
}

impl Staging {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let fresh = !folder.exists();
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let place = if fresh { parent } else { folder };
        if !place.is_dir() {
            let reason = format!("there is no folder {}; create it first", place.display());
            return Err(Error::output(folder, reason));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".track.").suffix(".part");
        // Temporary folders are private; a finished one is as open as any other of the user's.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let dir = builder.tempdir_in(place).map_err(|e| {
            let reason = format!("no folder can be created there: {}", os_reason(&e));
            Error::output(folder, reason + "; choose another place")
        })?;
        Ok(Self {
            folder: folder.to_path_buf(),
            dir,
            fresh,
        })
    }

    /// Adds a file; its checksum.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<String> {
        std::fs::write(self.dir.path().join(name), bytes).map_err(|e| self.failed(&e))?;
        Ok(checksum(bytes))
    }

    /// Gives every file its name, the index last: an earlier one describes its files up to then, and checksums
    /// tell should the system stop in between. Files that only `replaced` named are removed.
    pub(super) fn finish(self, index: &Index, replaced: Option<&Index>) -> Result<()> {
        let mut text = serde_json::to_string_pretty(index)
            .map_err(|e| Error::Internal(format!("the index: {e}")))?;
        text.push('\n');
        self.put(INDEX, text.as_bytes())?;
        if self.fresh {
            std::fs::rename(self.dir.path(), &self.folder).map_err(|e| self.failed(&e))?;
            // It has another name now: nothing is left to remove.
            let _ = self.dir.keep();
            return Ok(());
        }
        let files = index.clips.iter().map(|entry| entry.tracks.as_str());
        for name in files.chain([INDEX]) {
            let (from, to) = (self.dir.path().join(name), self.folder.join(name));
            std::fs::rename(from, to).map_err(|e| self.failed(&e))?;
        }
        let kept = |name: &String| index.clips.iter().any(|entry| entry.tracks == *name);
        for entry in replaced.into_iter().flat_map(|old| &old.clips) {
            if !kept(&entry.tracks) {
                // What cannot be removed does no harm: nothing names it any more.
                let _ = std::fs::remove_file(self.folder.join(&entry.tracks));
            }
        }
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::output(
            &self.folder,
            format!("{}; check the disk", os_reason(error)),
        )
    }
}

/// The recorded numbers of a clip, if they are the ones that the index speaks of.
pub(super) fn read_numbers(folder: &Path, entry: &Entry) -> Result<Numbers> {
    let path = folder.join(&entry.tracks);
    let bytes = std::fs::read(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let reason =
                format!("{INDEX} names it, but it is not there; restore it, or record again");
            Error::input(&path, reason)
        }
        _ => Error::input(&path, format!("cannot be read ({})", os_reason(&e))),
    })?;
    if checksum(&bytes) != entry.tracks_sha256 {
        return Err(Error::input(
            &path,
            format!(
                "it was changed or cut since it was recorded (its checksum is not the one in {INDEX}); restore it, or record again"
            ),
        ));
    }
    let numbers = Numbers::from_bytes(&bytes)
        .map_err(|e| Error::input(&path, format!("cannot be read as golden outputs ({e})")))?;
    if (numbers.frames, numbers.points) != (entry.frames, entry.points) {
        return Err(Error::input(
            &path,
            format!(
                "it has {} points on {} frames, but {INDEX} says {} on {}; record again",
                numbers.points, numbers.frames, entry.points, entry.frames
            ),
        ));
    }
    Ok(numbers)
}

fn checksum(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(bytes))
}
