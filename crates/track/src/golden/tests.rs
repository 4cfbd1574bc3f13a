//! Folders recorded and checked with a model that needs no weights.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::check::{CheckOptions, Outcome, Verdict, check};
use super::folder::read_numbers;
use super::index::{INDEX, Index};
use super::record::put;
use super::*;
use crate::{Cancel, Error, ErrorKind, FrameRange, Queries, Tracker, Watch, fake};

const FRAMES: usize = 5;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A folder of stills whose grey starts at `shade`.
    fn clip(&self, name: &str, shade: u8) -> PathBuf {
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        for n in 0..FRAMES {
            still(&folder, n, shade + n as u8);
        }
        folder
    }

    fn record(&self, clips: &[PathBuf], replace: bool) -> Result<Golden> {
        let options = RecordOptions {
            replace,
            ..Default::default()
        };
        let folder = self.path("goldens");
        record(
            &tracker(),
            clips,
            &Queries::grid(2),
            &folder,
            &options,
            &Watch::new(),
        )
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path(folder))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn still(folder: &Path, n: usize, grey: u8) {
    let mut bytes = b"P6 32 24 255\n".to_vec();
    bytes.resize(bytes.len() + 32 * 24 * 3, grey);
    std::fs::write(folder.join(format!("{n}.ppm")), bytes).unwrap();
}

fn tracker() -> Tracker {
    fake::tracker(&Tracker::builder())
}

fn checked(golden: &Golden) -> Check {
    check(golden, &tracker(), &CheckOptions::default(), &Watch::new()).unwrap()
}

fn failure(golden: &Golden) -> String {
    let check = checked(golden);
    assert_eq!(check.verdict(), Verdict::Unchecked);
    let (_, error) = check.failure().unwrap();
    assert_eq!(error.kind(), ErrorKind::Input);
    error.to_string()
}

/// Moves every x of the first clip's recorded numbers, with checksums to match.
fn moved_by(golden: &Golden, dx: f32) -> Golden {
    let mut index = golden.index.clone();
    let entry = index.clips[0].clone();
    let mut numbers = read_numbers(&golden.folder, &entry).unwrap();
    numbers
        .positions
        .iter_mut()
        .step_by(2)
        .for_each(|x| *x += dx);
    let staging = folder::Staging::new(&golden.folder).unwrap();
    index.clips[0] = put(&staging, entry.name, &numbers, entry.clip, &index.recorded).unwrap();
    for other in &index.clips[1..] {
        let bytes = std::fs::read(golden.folder.join(&other.tracks)).unwrap();
        staging.put(&other.tracks, &bytes).unwrap();
    }
    staging.finish(&index, None).unwrap();
    Golden::open(&golden.folder).unwrap()
}

#[test]
fn what_was_recorded_is_found_again() {
    let place = Place::new();
    let clips = [place.clip("a", 10), place.clip("b", 90)];
    let golden = place.record(&clips, false).unwrap();
    assert_eq!(place.names("."), ["a", "b", "goldens"]);
    assert_eq!(
        place.names("goldens"),
        ["a.safetensors", "b.safetensors", INDEX]
    );
    assert_eq!(golden.clips()[1].clip.path, "../b");
    let check = checked(&golden);
    assert_eq!(check.verdict(), Verdict::Equal);
    assert!(check.changed().is_empty());
    assert_eq!(check.count(Verdict::Equal), 2);
    let table = check.to_string();
    assert!(table.lines().nth(1).unwrap().ends_with("equal"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&check.to_json().unwrap()).unwrap();
    assert_eq!(json["schema"], "track-golden-check/1");
    assert_eq!(json["verdict"], "equal");
    assert_eq!(json["clips"][0]["differences"]["max_px"], 0.0);
    // The same recording gives the same bytes.
    let read =
        || ["a.safetensors", INDEX].map(|n| std::fs::read(place.path("goldens").join(n)).unwrap());
    let before = read();
    place.record(&clips, true).unwrap();
    assert!(read() == before);
}

#[test]
fn what_moved_is_told_and_can_be_accepted() {
    let place = Place::new();
    let clips = [place.clip("a", 10), place.clip("b", 90)];
    let golden = moved_by(&place.record(&clips, false).unwrap(), 0.25);
    let check = checked(&golden);
    assert_eq!(check.verdict(), Verdict::Moved);
    assert_eq!(
        (check.count(Verdict::Moved), check.count(Verdict::Equal)),
        (1, 1)
    );
    let Outcome::Compared {
        differences, worst, ..
    } = &check.clips[0].outcome
    else {
        panic!("{check}");
    };
    assert_eq!(
        (differences.median_px, differences.visible_equal),
        (0.25, 1.0)
    );
    assert_eq!(worst.len(), 3);
    assert!(
        check
            .to_string()
            .contains("a: furthest point 0 on frame 0 by 0.25 px"),
        "{check}"
    );
    let wide = CheckOptions {
        tolerance: Some(Tolerance {
            median_px: 0.3,
            p99_px: 0.3,
            ..check.tolerance
        }),
        ..Default::default()
    };
    let allowed = super::check(&golden, &tracker(), &wide, &Watch::new()).unwrap();
    assert_eq!(allowed.verdict(), Verdict::Within);

    let golden = check.accept(&golden).unwrap();
    assert_eq!(checked(&golden).verdict(), Verdict::Equal);
    assert_eq!(
        place.names("goldens"),
        ["a.safetensors", "b.safetensors", INDEX]
    );
}

#[test]
fn goldens_are_replaced_only_when_asked_and_keep_their_tolerances() {
    let place = Place::new();
    let a = place.clip("a", 10);
    let golden = place
        .record(&[a.clone(), place.clip("b", 90)], false)
        .unwrap();
    let error = place.record(std::slice::from_ref(&a), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("--replace"), "{error}");
    let index = place.path("goldens").join(INDEX);
    let text = std::fs::read_to_string(&index).unwrap();
    let looser = text.replacen("\"median_px\": 0.05", "\"median_px\": 7.5", 2);
    assert_ne!(looser, text);
    std::fs::write(&index, looser).unwrap();
    let again = place.record(&[a], true).unwrap();
    assert_eq!(place.names("goldens"), ["a.safetensors", INDEX]);
    assert_eq!(again.tolerance(Precision::F16).median_px, 7.5);
    assert_eq!(
        again.tolerance(Precision::F32),
        golden.tolerance(Precision::F32)
    );
}

#[test]
fn nothing_appears_when_a_clip_cannot_be_recorded() {
    let place = Place::new();
    let bad = place.path("notes.txt");
    std::fs::write(&bad, "no video").unwrap();
    let error = place
        .record(&[place.clip("a", 10), bad], false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert_eq!(place.names("."), ["a", "notes.txt"]);
    let cancel = Cancel::new();
    cancel.cancel();
    let watch = Watch::new().cancelled_by(&cancel);
    let (clips, options) = ([place.path("a")], RecordOptions::default());
    let folder = place.path("goldens");
    let error = record(
        &tracker(),
        &clips,
        &Queries::grid(2),
        &folder,
        &options,
        &watch,
    );
    assert!(matches!(error, Err(Error::Cancelled)));
    assert_eq!(place.names("."), ["a", "notes.txt"]);
    assert!(place.record(&[], false).is_err());
    // A folder that is there is left as it was.
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("README.md"), "ours").unwrap();
    assert!(place.record(&[place.path("notes.txt")], false).is_err());
    assert_eq!(place.names("goldens"), ["README.md"]);
    place.record(&clips, false).unwrap();
    assert_eq!(
        place.names("goldens"),
        ["README.md", "a.safetensors", INDEX]
    );
}

#[test]
fn damaged_goldens_are_told_by_their_checksums() {
    let place = Place::new();
    let golden = place.record(&[place.clip("a", 10)], false).unwrap();
    let file = place.path("goldens").join("a.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let mut tampered = whole.clone();
    *tampered.last_mut().unwrap() ^= 1;
    for bytes in [&tampered[..], &whole[..whole.len() / 2], &[]] {
        std::fs::write(&file, bytes).unwrap();
        let error = failure(&golden);
        assert!(
            error.contains("a.safetensors: it was changed or cut"),
            "{error}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    let error = failure(&golden);
    assert!(error.contains("it is not there"), "{error}");
}

#[test]
fn one_bad_clip_does_not_hide_the_others() {
    let place = Place::new();
    let clips = [
        place.clip("a", 10),
        place.clip("b", 90),
        place.clip("c", 40),
    ];
    let golden = place.record(&clips, false).unwrap();
    // Another picture in one, another gone altogether.
    still(&clips[0], 2, 200);
    std::fs::remove_dir_all(&clips[1]).unwrap();
    let check = checked(&golden);
    let verdicts: Vec<_> = check.clips.iter().map(ClipCheck::verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::Unchecked, Verdict::Unchecked, Verdict::Equal]
    );
    let table = check.to_string();
    assert!(
        table.contains("is not the one that was recorded"),
        "{table}"
    );
    assert!(table.contains("no such file or folder"), "{table}");
    assert!(check.accept(&golden).is_err());
    let json: serde_json::Value =
        serde_json::from_str(&checked(&golden).to_json().unwrap()).unwrap();
    assert!(
        json["clips"][1]["error"]
            .as_str()
            .unwrap()
            .contains("no such file")
    );
}

#[test]
fn a_clip_is_found_in_another_folder() {
    let place = Place::new();
    let clip = place.clip("shots/a", 10);
    let golden = place.record(std::slice::from_ref(&clip), false).unwrap();
    std::fs::rename(place.path("shots"), place.path("moved")).unwrap();
    assert!(failure(&golden).contains("no such file"));
    let options = CheckOptions {
        clips: Some(place.path("moved")),
        ..Default::default()
    };
    let check = super::check(&golden, &tracker(), &options, &Watch::new()).unwrap();
    assert_eq!(check.verdict(), Verdict::Equal);
}

#[test]
fn the_part_that_was_tracked_is_tracked_again() {
    let place = Place::new();
    let range: FrameRange = "1..4".parse().unwrap();
    let options = RecordOptions {
        range,
        ..Default::default()
    };
    let (clips, folder) = ([place.clip("a", 10)], place.path("goldens"));
    let points = Queries::points([(1.5, 3.25, 4.0)]);
    let golden = record(
        &tracker(),
        &clips,
        &points,
        &folder,
        &options,
        &Watch::new(),
    )
    .unwrap();
    assert_eq!((golden.clips()[0].frames, golden.clips()[0].points), (3, 1));
    assert_eq!(checked(&golden).verdict(), Verdict::Equal);
    // A frame outside the part is nobody's business, one more inside it is.
    still(&clips[0], 4, 250);
    assert_eq!(checked(&golden).verdict(), Verdict::Equal);
}

#[test]
fn an_index_that_makes_no_sense_is_refused_in_a_sentence() {
    let place = Place::new();
    place.record(&[place.clip("a", 10)], false).unwrap();
    let path = place.path("goldens").join(INDEX);
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, says) in [
        (
            "track-golden/1",
            "track-golden/9",
            "expected schema track-golden/1, found track-golden/9",
        ),
        (
            "\"a.safetensors\"",
            "\"../a.safetensors\"",
            "is no file of the folder",
        ),
        (
            "\"precision\": \"f32\"",
            "\"precision\": \"f31\"",
            "'f31' is no precision",
        ),
        (
            "\"resolution\": \"model\"",
            "\"resolution\": \"0x5\"",
            "is no resolution",
        ),
        ("\"start\": null", "\"start\": \"now\"", "frame or time"),
        (
            "\"visible_equal\": 0.999",
            "\"visible_equal\": 99.9",
            "visible_equal",
        ),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        std::fs::write(&path, changed).unwrap();
        let error = Golden::open(place.path("goldens")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(Index::read(&place.path("goldens")).is_err());
    // What cannot be read can still be replaced.
    place.record(&[place.path("a")], true).unwrap();
    let error = Golden::open(place.path("a")).unwrap_err().to_string();
    assert!(error.contains("found no golden.json"), "{error}");
}
