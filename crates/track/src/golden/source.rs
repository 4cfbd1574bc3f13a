//! Clips of a folder: where they lie seen from it, and whether they are still the ones recorded.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::index::RecordedClip;
use crate::error::os_reason;
use crate::tracker::{hex, sha256};
use crate::{Cancel, Clip, Error, FrameRange, Result};

/// A path as seen from `folder`, with `/` between its parts, so that both may move together. Without a common
/// root, and with a name that is no UTF-8, it stays what it is, as text.
pub(crate) fn seen_from(folder: &Path, path: &Path) -> String {
    let (folder, path) = (without_links(folder), without_links(path));
    let parts = |p: &Path| -> Vec<_> { p.components().map(|c| c.as_os_str().to_owned()).collect() };
    let (from, to) = (parts(&folder), parts(&path));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    if common == 0 {
        return path.to_string_lossy().into_owned();
    }
    let up = from[common..].iter().map(|_| OsStr::new(".."));
    let down = to[common..].iter().map(|c| c.as_os_str());
    let parts: Vec<_> = up.chain(down).map(OsStr::to_string_lossy).collect();
    parts.join("/")
}

/// An absolute path without links, also for what is not there (yet) or is a pattern.
fn without_links(path: &Path) -> PathBuf {
    for known in path.ancestors() {
        let place = if known.as_os_str().is_empty() {
            Path::new(".")
        } else {
            known
        };
        if let (Ok(place), Ok(rest)) = (place.canonicalize(), path.strip_prefix(known)) {
            return place.join(rest);
        }
    }
    path.to_path_buf()
}

/// Where a clip lies: as recorded, or below `clips`, by as much of its recorded path as is found there.
pub(crate) fn locate(stored: &str, folder: &Path, clips: Option<&Path>) -> PathBuf {
    let Some(clips) = clips else {
        return folder.join(stored);
    };
    let named: Vec<_> = Path::new(stored)
        .components()
        .filter(|c| matches!(c, Component::Normal(_)))
        .collect();
    let candidates: Vec<PathBuf> = (0..named.len())
        .map(|n| clips.join(named[n..].iter().collect::<PathBuf>()))
        .collect();
    let there = candidates.iter().find(|p| p.exists());
    let pattern = || candidates.iter().find(|p| Clip::open(p).is_ok());
    // Nothing found: the plain name makes the clearest message.
    match there.or_else(pattern).or(candidates.last()) {
        Some(place) => place.clone(),
        None => clips.to_path_buf(),
    }
}

/// What is recorded of a clip's source: its checksum where it is one file.
pub(crate) fn file_sha256(path: &Path) -> Result<Option<String>> {
    if !path.is_file() {
        return Ok(None);
    }
    let unreadable = |e| Error::input(path, format!("cannot be read ({})", os_reason(&e)));
    sha256(path).map(Some).map_err(unreadable)
}

/// SHA-256 of the clip's frames as they are decoded here.
pub(crate) fn frames_sha256(clip: &Clip, cancel: &Cancel) -> Result<String> {
    let mut hash = Sha256::new();
    for frame in clip.frames()? {
        cancel.check()?;
        hash.update(&frame?.data);
    }
    Ok(hex(&hash.finalize()))
}

/// Opens a recorded clip, and refuses one whose file is another.
pub(crate) fn open(recorded: &RecordedClip, path: &Path) -> Result<Clip> {
    let (start, end) = recorded
        .range()
        .map_err(|reason| Error::input(path, reason))?;
    let clip = Clip::options()
        .range(FrameRange { start, end })
        .open(path)?;
    let now = file_sha256(path)?;
    if now.is_some() != recorded.sha256.is_some() {
        return Err(changed(path));
    }
    match (&now, &recorded.sha256) {
        (Some(now), Some(then)) if now != then => Err(changed(path)),
        _ => Ok(clip),
    }
}

/// The clip is not the one that was recorded.
pub(crate) fn changed(path: &Path) -> Error {
    Error::input(
        path,
        "the clip is not the one that was recorded (its checksum is another); restore it, or record again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_again_from_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("goldens");
        let clip = place.path().join("clips/a.gif");
        std::fs::create_dir(place.path().join("clips")).unwrap();
        std::fs::write(&clip, "x").unwrap();
        // The folder need not be there yet.
        assert_eq!(seen_from(&folder, &clip), "../clips/a.gif");
        assert_eq!(seen_from(place.path(), &clip), "clips/a.gif");
        let pattern = place.path().join("clips/*.png");
        assert_eq!(seen_from(&folder, &pattern), "../clips/*.png");
        std::fs::create_dir(&folder).unwrap();
        assert!(locate("../clips/a.gif", &folder, None).is_file());
    }

    #[test]
    fn what_is_not_there_is_named_plainly_below_another_folder() {
        let clips = Path::new("elsewhere");
        let found = locate("../clips/a.gif", Path::new("goldens"), Some(clips));
        assert_eq!(found, Path::new("elsewhere/a.gif"));
    }
}
