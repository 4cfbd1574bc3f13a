//! Recording: what a tracker answers on some clips, kept to compare with.

use std::path::{Path, PathBuf};

use super::Golden;
use super::folder::{Staging, check_target};
use super::index::{Entry, Index, Recorded, RecordedClip, SCHEMA};
use super::numbers::Numbers;
use super::{source, tolerance};
use crate::{Clip, Error, FrameRange, Queries, Result, Tracker, Watch};

/// How to record. See [`record`].
#[derive(Debug, Clone, Default)]
pub struct RecordOptions {
    /// The part of every clip that is tracked.
    pub range: FrameRange,
    /// Whether goldens that the folder holds already are replaced. Their tolerances are kept.
    pub replace: bool,
}

/// Tracks `queries` in every clip and keeps what came out in `folder`, which appears, or changes, only when all of it
/// is complete.
///
/// # Errors
/// A folder that holds goldens already or cannot be written, clips that cannot be read, points that do not lie in one
/// of them, answers that are not finite, whatever tracking can fail with, or [`Error::Cancelled`].
pub fn record(
    tracker: &Tracker,
    clips: &[PathBuf],
    queries: &Queries,
    folder: &Path,
    options: &RecordOptions,
    watch: &Watch<'_>,
) -> Result<Golden> {
    let replaced = check_target(folder, options.replace)?;
    if clips.is_empty() {
        return Err(Error::Request(
            "there is no clip to record; give at least one".to_owned(),
        ));
    }
    // All heads and all points first: a slip in the last clip should not cost the tracking of the others.
    let opened = clips
        .iter()
        .map(|path| {
            let clip = Clip::options().range(options.range).open(path)?;
            queries.resolve(clip.width(), clip.height())?;
            Ok((path, clip))
        })
        .collect::<Result<Vec<_>>>()?;
    let staging = Staging::new(folder)?;
    let recorded = recorded(tracker, folder);
    let mut entries: Vec<Entry> = Vec::new();
    for (path, clip) in opened {
        let tracks = tracker.track(&clip, queries, watch)?;
        let numbers = finite(Numbers::of(&tracks), path, &recorded)?;
        let name = name(path, &entries);
        let position = |p: Option<crate::Position>| p.map(|p| p.to_string());
        let clip = RecordedClip {
            path: source::seen_from(folder, path),
            sha256: source::file_sha256(path)?,
            frames_sha256: Some(source::frames_sha256(&clip, watch.cancel())?),
            start: position(options.range.start),
            end: position(options.range.end),
            width: clip.width(),
            height: clip.height(),
        };
        entries.push(put(&staging, name, &numbers, clip, &recorded)?);
    }
    let tolerances = match &replaced {
        Some(old) => old.tolerances.clone(),
        None => tolerance::defaults(),
    };
    let index = Index {
        schema: SCHEMA.to_owned(),
        recorded,
        tolerances,
        clips: entries,
    };
    staging.finish(&index, replaced.as_ref())?;
    Golden::open(folder)
}

/// What decides the tracks of `tracker`, for a folder.
pub(super) fn recorded(tracker: &Tracker, folder: &Path) -> Recorded {
    Recorded::of(tracker, |weights| {
        source::seen_from(folder, Path::new(weights))
    })
}

/// Puts a clip's numbers among the others and describes them.
pub(super) fn put(
    staging: &Staging,
    name: String,
    numbers: &Numbers,
    clip: RecordedClip,
    recorded: &Recorded,
) -> Result<Entry> {
    // A file that is found alone should say where it comes from.
    let origin = serde_json::json!({ "schema": SCHEMA, "recorded": recorded, "clip": clip });
    let bytes = numbers
        .to_bytes(origin.to_string())
        .map_err(|e| Error::Internal(format!("the numbers of {name}: {e}")))?;
    let tracks = format!("{name}.safetensors");
    Ok(Entry {
        tracks_sha256: staging.put(&tracks, &bytes)?,
        tracks,
        name,
        frames: numbers.frames,
        points: numbers.points,
        clip,
    })
}

/// Refuses to keep numbers that are none: nothing could ever be compared with them.
pub(super) fn finite(numbers: Numbers, clip: &Path, recorded: &Recorded) -> Result<Numbers> {
    if numbers.finite() {
        return Ok(numbers);
    }
    Err(Error::Device(format!(
        "{}: the tracks are not finite in {} and were not recorded; find the layer with track --check-finite",
        clip.display(),
        recorded.precision
    )))
}

/// What a clip is called: its file's name without extension, in letters that any file system takes, and a number
/// where that is taken.
fn name(path: &Path, taken: &[Entry]) -> String {
    let pattern = |p: &Path| p.to_string_lossy().contains(['*', '?', '[']);
    let place = path.ancestors().find(|p| !pattern(p)).unwrap_or(path);
    let stem = if place.is_file() || (place == path && !place.is_dir()) {
        place.file_stem().map(ToOwned::to_owned)
    } else {
        // A folder may be given as `.`, and its name may have dots.
        let named = place.canonicalize().unwrap_or_else(|_| place.to_path_buf());
        named.file_name().map(ToOwned::to_owned)
    };
    let plain: String = stem
        .unwrap_or_default()
        .to_string_lossy()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    let plain = match plain.trim_start_matches('.') {
        "" => "clip".to_owned(),
        name => name.to_owned(),
    };
    let free = |name: &String| {
        let same = |entry: &Entry| entry.name.eq_ignore_ascii_case(name);
        !taken.iter().any(same)
    };
    let numbered = (2..).map(|n| format!("{plain}-{n}"));
    std::iter::once(plain.clone())
        .chain(numbered)
        .find(free)
        .unwrap_or(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_never_twice() {
        let clip = RecordedClip {
            path: String::new(),
            sha256: None,
            frames_sha256: None,
            start: None,
            end: None,
            width: 1,
            height: 1,
        };
        let mut taken = Vec::new();
        for (path, expected) in [
            ("a/street.mp4", "street"),
            ("b/Street.mov", "Street-2"),
            ("street.gif", "street-3"),
            ("a b/*.png", "a_b"),
            ("/", "clip"),
            (".hidden", "hidden"),
        ] {
            let name = name(Path::new(path), &taken);
            assert_eq!(name, expected, "{path}");
            taken.push(Entry {
                name,
                tracks: String::new(),
                tracks_sha256: String::new(),
                frames: 1,
                points: 1,
                clip: clip.clone(),
            });
        }
    }
}
