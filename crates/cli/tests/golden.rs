//! `track golden` as a user runs it: recorded, checked, moved, damaged.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use common::{CLIP, Place, weights_with_bias};
use serde_json::Value;

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const WEIGHTS_DO_NOT_FIT: i32 = 4;
const DEVICE: i32 = 5;
const MOVED: i32 = 6;

/// Four points on four frames of the shipped clip, under another name in `clips`, recorded in `goldens`.
fn recorded() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("clips")).unwrap();
    std::fs::copy(CLIP, place.path("clips/street.mp4")).unwrap();
    let said = place.ok(&[&["golden", "record", "clips/street.mp4"], &SHORT[..]].concat());
    assert!(said.contains("street: 4 points on 4 frames"), "{said}");
    assert_eq!(place.names(), ["clips", "goldens"]);
    place
}

const SHORT: [&str; 6] = ["-o", "goldens", "--grid", "2", "--end", "4"];

fn json(place: &Place, code: i32, arguments: &[&str]) -> Value {
    let output = place.run(&[&["golden", "check", "goldens", "--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(errors.lines().count(), usize::from(code != 0), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Half-precision bits.
const HALF: u16 = 0x3800;
const QUARTER: u16 = 0x3400;
const NAN: u16 = 0x7e00;

fn other_weights(place: &Place, bias: u16) {
    place.write("other.safetensors", weights_with_bias(bias));
}

#[test]
fn what_was_recorded_is_found_again() {
    let place = recorded();
    let table = place.ok(&["golden", "check", "goldens"]);
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["street", "4", "4"]);
    assert_eq!(row.last(), Some(&"equal"), "{table}");
    assert!(table.contains("allowed (f32)"), "{table}");
    assert_eq!(place.ok(&["golden", "check", "goldens", "-q"]), "");
    let value = json(&place, 0, &["--threads", "1"]);
    assert_eq!(value["schema"], "track-golden-check/1");
    assert_eq!(value["verdict"], "equal");
    assert_eq!(value["changed"], serde_json::json!([]));
    assert_eq!(value["clips"][0]["differences"]["visible_equal"], 1.0);
    // Both may move together; a clip may also lie elsewhere.
    std::fs::create_dir(place.path("sub")).unwrap();
    std::fs::rename(place.path("clips"), place.path("sub/clips")).unwrap();
    std::fs::rename(place.path("goldens"), place.path("sub/goldens")).unwrap();
    place.ok(&["golden", "check", "sub/goldens"]);
    std::fs::rename(place.path("sub/goldens"), place.path("goldens")).unwrap();
    place.ok(&["golden", "check", "goldens", "--clips", "sub/clips"]);
    // The index says what decided the tracks.
    let index: Value = serde_json::from_slice(&place.read("goldens/golden.json")).unwrap();
    assert_eq!(index["schema"], "track-golden/1");
    assert_eq!(index["recorded"]["model"], "locotrack-small");
    assert_eq!(index["clips"][0]["clip"]["path"], "../clips/street.mp4");
    assert_eq!(index["clips"][0]["clip"]["end"], "4");
}

#[test]
fn other_weights_are_told_with_how_far_everything_moved() {
    let place = recorded();
    other_weights(&place, HALF);
    let arguments = [
        "golden",
        "check",
        "goldens",
        "--weights",
        "other.safetensors",
    ];
    let output = place.run(&arguments);
    let (table, errors) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(MOVED), "{errors}");
    assert!(
        errors.starts_with("error: 1 of 1 clips moved further than allowed"),
        "{errors}"
    );
    assert!(table.lines().nth(1).unwrap().ends_with("MOVED"), "{table}");
    let changed = table.lines().find(|l| l.starts_with("changed")).unwrap();
    assert!(
        changed.contains("weights locotrack_small (built in) 71d6525f937e… → other.safetensors"),
        "{table}"
    );
    assert!(table.contains("street: furthest point "), "{table}");

    let value = json(&place, MOVED, &arguments[3..]);
    assert_eq!(value["verdict"], "moved");
    assert_eq!(value["changed"][0]["what"], "weights");
    let differences = &value["clips"][0]["differences"];
    let (median, most) = (&differences["median_px"], &differences["max_px"]);
    assert!(median.as_f64().unwrap() > 0.01 && most.as_f64() >= median.as_f64());
    assert_eq!(value["clips"][0]["worst"].as_array().unwrap().len(), 3);
    // Enough tolerance lets it pass, one limit too few does not.
    let wide = [
        "--tolerance",
        "median=99,p99=99,logit=99",
        "--tolerance",
        "visible=0",
    ];
    let passed = json(&place, 0, &[&arguments[3..], &wide].concat());
    assert_eq!(passed["verdict"], "within");
    json(
        &place,
        MOVED,
        &[&arguments[3..], &wide, &["--tolerance", "p99=0.0001"]].concat(),
    );
    // Updating prints the table all the same, and then the new numbers are the recorded ones.
    let table = place.ok(&[&arguments[..], &["--update"]].concat());
    assert!(table.contains("MOVED"), "{table}");
    let value = json(&place, 0, &[]);
    assert_eq!(value["verdict"], "equal");
    assert_eq!(value["recorded"]["weights"]["name"], "other.safetensors");
    // The weights are looked for where they were; a file of that name with other values is another.
    other_weights(&place, QUARTER);
    assert_eq!(json(&place, MOVED, &[])["changed"][0]["what"], "weights");
    std::fs::remove_file(place.path("other.safetensors")).unwrap();
    let sentence = place.refused(&["golden", "check", "goldens"], WEIGHTS_DO_NOT_FIT);
    assert!(sentence.contains("other.safetensors"), "{sentence}");
}

#[test]
fn damaged_goldens_and_other_clips_are_input_errors() {
    let place = recorded();
    let check = ["golden", "check", "goldens"];
    let failed = |words: &[&str]| {
        let output = place.run(&check);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(INPUT), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for word in words {
            assert!(errors.contains(word), "'{word}' is not in: {errors}");
        }
        // The table is there, and says which one was not checked.
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("not checked"), "{table}");
    };
    let file = place.path("goldens/street.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let mut tampered = whole.clone();
    tampered[whole.len() / 2] ^= 0x40;
    for bytes in [&tampered, &whole[..whole.len() - 1], &whole[..7]] {
        std::fs::write(&file, bytes).unwrap();
        failed(&[
            "1 of 1 clips could not be checked",
            "street.safetensors: it was changed or cut",
        ]);
    }
    std::fs::write(&file, &whole).unwrap();

    let mut clip = place.read("clips/street.mp4");
    clip.push(0);
    place.write("clips/street.mp4", &clip);
    failed(&["street.mp4: the clip is not the one that was recorded"]);
    std::fs::remove_file(place.path("clips/street.mp4")).unwrap();
    failed(&["street.mp4: no such file or folder"]);
    let output = place.run(&[&check[..], &["--update"]].concat());
    assert_eq!(output.status.code(), Some(INPUT));
    assert!(
        std::fs::read(&file).unwrap() == whole,
        "an update of what was not checked"
    );

    let index = String::from_utf8(place.read("goldens/golden.json")).unwrap();
    place.write("goldens/golden.json", &index[..index.len() / 2]);
    let sentence = place.refused(&check, INPUT);
    assert!(
        sentence.contains("golden.json: cannot be read as track-golden/1"),
        "{sentence}"
    );
    place.write(
        "goldens/golden.json",
        index.replace("track-golden/1", "track-golden/7"),
    );
    assert!(place.refused(&check, INPUT).contains("track-golden/7"));
}

#[test]
fn slips_are_refused_before_anything_is_tracked() {
    let place = recorded();
    place.write("notes.txt", "no video");
    for (arguments, code, word) in [
        (
            &["golden", "check", "clips"][..],
            INPUT,
            "found no golden.json",
        ),
        (&["golden", "check", "nowhere"], INPUT, "nowhere"),
        (
            &["golden", "check", "goldens", "--clips", "notes.txt"],
            USAGE,
            "--clips",
        ),
        (
            &["golden", "check", "goldens", "--tolerance", "p98=1"],
            USAGE,
            "median=PX",
        ),
        (
            &[
                "golden", "check", "goldens", "--dtype", "f16", "--device", "cpu",
            ],
            DEVICE,
            "f16 is not available",
        ),
        (
            &["golden", "check", "goldens", "--weights", "notes.txt"],
            WEIGHTS_DO_NOT_FIT,
            "notes.txt",
        ),
        (&["golden", "record", "-o", "new"], USAGE, "<CLIP>"),
        (&["golden", "record", "clips/street.mp4"], USAGE, "--output"),
        (
            &["golden", "record", "clips/street.mp4", "-o", "goldens"],
            USAGE,
            "--replace",
        ),
        (
            &["golden", "record", "clips/street.mp4", "-o", "notes.txt"],
            USAGE,
            "it is a file",
        ),
        (
            &["golden", "record", "clips/street.mp4", "-o", "no/where"],
            USAGE,
            "there is no folder no",
        ),
        (
            &[
                "golden",
                "record",
                "clips/street.mp4",
                "notes.txt",
                "-o",
                "new",
            ],
            INPUT,
            "notes.txt",
        ),
        (
            &[
                "golden",
                "record",
                "clips/street.mp4",
                "-o",
                "new",
                "--points",
                "0,999,1",
            ],
            USAGE,
            "point 0",
        ),
        (
            &[
                "golden",
                "record",
                "clips/street.mp4",
                "-o",
                "new",
                "--end",
                "3",
                "--points",
                "5,9,1",
            ],
            USAGE,
            "0 to 2",
        ),
    ] {
        let sentence = place.refused(arguments, code);
        assert!(sentence.contains(word), "'{word}' is not in: {sentence}");
    }
    assert_eq!(
        common::names(&place.path("goldens")),
        ["golden.json", "street.safetensors"]
    );
}

#[test]
fn what_is_not_finite_is_not_recorded() {
    let place = recorded();
    other_weights(&place, NAN);
    let weights = ["--weights", "other.safetensors", "--device", "cpu"];
    let arguments = [
        "golden",
        "record",
        "clips/street.mp4",
        "-o",
        "new",
        "--end",
        "3",
    ];
    let sentence = place.refused(&[&arguments[..], &weights].concat(), DEVICE);
    assert!(sentence.contains("not finite in f32"), "{sentence}");
    // A check tells it as a move without end.
    let value = json(&place, MOVED, &weights);
    assert!(value["clips"][0]["differences"]["max_px"].is_null());
    let sentence = place.run(&[&["golden", "check", "goldens", "--update"], &weights[..]].concat());
    assert_eq!(sentence.status.code(), Some(DEVICE));
    assert_eq!(json(&place, 0, &[])["verdict"], "equal");
}

#[test]
fn the_layer_that_is_not_finite_is_named_when_asked() {
    let place = Place::new();
    other_weights(&place, NAN);
    let arguments = [
        CLIP,
        "--end",
        "3",
        "--grid",
        "2",
        "-o",
        "a.csv",
        "--weights",
        "other.safetensors",
    ];
    let sentence = place.refused(
        &[&arguments[..], &["--check-finite", "--device", "cpu"]].concat(),
        DEVICE,
    );
    assert_eq!(
        sentence,
        "error: the layer refine.output gave values that are not finite in f32 on points 0 to 3 in refinement 1; no precision is wider, so use other weights"
    );
    place.ok(&[
        CLIP,
        "--end",
        "2",
        "--grid",
        "1",
        "-o",
        "a.csv",
        "--check-finite",
    ]);
}
