//! What cannot work is refused with one sentence and the right exit code, and leaves nothing behind.

mod common;

use common::{CLIP, Place, WEIGHTS, pgm, wav};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const WEIGHTS_DO_NOT_FIT: i32 = 4;
const DEVICE: i32 = 5;

/// Expects a refusal whose sentence contains every one of `words`.
#[track_caller]
fn refused(place: &Place, arguments: &[&str], code: i32, words: &[&str]) {
    let sentence = place.refused(arguments, code);
    for word in words {
        assert!(sentence.contains(word), "'{word}' is not in: {sentence}");
    }
}

#[test]
fn what_is_no_video() {
    let place = Place::new();
    place.write("text.mp4", "this is not a video\n".repeat(50));
    place.write("empty.mp4", "");
    place.write("sound.wav", wav());
    std::fs::create_dir(place.path("folder")).unwrap();
    std::fs::write(place.path("folder").join("note.txt"), "no picture").unwrap();
    for video in [
        "missing.mp4",
        "text.mp4",
        "empty.mp4",
        "sound.wav",
        "folder",
    ] {
        refused(&place, &[video], INPUT, &[video]);
    }
}

#[test]
fn cut_videos() {
    let place = Place::new();
    let whole = std::fs::read(CLIP).unwrap();
    place.write("head.mp4", &whole[..3000]);
    refused(&place, &["head.mp4"], INPUT, &["head.mp4"]);
    // Half a file is either unreadable or yields the frames that are there, never something in between.
    place.write("half.mp4", &whole[..whole.len() / 2]);
    let arguments = ["half.mp4", "--grid", "1", "-o", "half.csv"];
    let output = place.run(&arguments);
    match output.status.code() {
        Some(0) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!errors.trim().is_empty(), "lost frames are not mentioned");
            assert!(place.names().contains(&"half.csv".to_owned()));
        }
        _ => refused(&place, &arguments, INPUT, &["half.mp4"]),
    }
}

#[test]
fn points_that_do_not_lie_in_the_clip() {
    let place = Place::new();
    let points = |t: &str| ["--points", t].map(str::to_owned);
    for (point, words) in [
        ("0,300,10", &["point 0", "256×256"][..]),
        ("0,10,-0.5", &["point 0", "256×256"]),
        ("-1,10,10", &["point 0", "from 0"]),
        ("47,10,10", &["point 0", "0 to 46"]),
    ] {
        let [flag, value] = points(point);
        refused(&place, &[CLIP, &flag, &value], USAGE, words);
    }
    refused(
        &place,
        &[CLIP, "--query-frame", "99", "--grid", "2"],
        USAGE,
        &["0 to 46"],
    );
    refused(
        &place,
        &[CLIP, "--end", "5", "--points", "5,1,1"],
        USAGE,
        &["0 to 4"],
    );
}

#[test]
fn points_that_are_not_written_as_points() {
    let place = Place::new();
    for bad in ["1,2", "a,b,c", "1,2,3,4", "", "0,nan,1"] {
        refused(&place, &[CLIP, "--points", bad], USAGE, &["t,x,y"]);
    }
    place.write("empty.csv", "");
    place.write("none.csv", "t,x,y\n");
    place.write("none.json", "[]");
    place.write("fields.csv", "frame,x,y\n0,1,2\n");
    place.write("words.csv", "t,x,y\n0,one,2\n");
    place.write("broken.json", "[{\"t\":0,");
    place.write("points.txt", "t,x,y\n0,1,2\n");
    for file in [
        "missing.csv",
        "empty.csv",
        "none.csv",
        "none.json",
        "fields.csv",
        "words.csv",
        "broken.json",
        "points.txt",
    ] {
        refused(&place, &[CLIP, "--points-file", file], INPUT, &[file]);
    }
    refused(&place, &[CLIP, "--grid", "0"], USAGE, &["grid"]);
    refused(&place, &[CLIP, "--grid", "99999"], USAGE, &["grid"]);
}

#[test]
fn masks_that_do_not_fit() {
    let place = Place::new();
    place.write("small.pgm", pgm(64, 48, |_, _| true));
    place.write("black.pgm", pgm(256, 256, |_, _| false));
    place.write("text.png", "no picture");
    refused(
        &place,
        &[CLIP, "--mask", "small.pgm"],
        USAGE,
        &["64×48", "256×256"],
    );
    refused(
        &place,
        &[CLIP, "--mask", "black.pgm"],
        USAGE,
        &["black.pgm"],
    );
    refused(&place, &[CLIP, "--mask", "text.png"], INPUT, &["text.png"]);
    refused(
        &place,
        &[CLIP, "--mask", "missing.png"],
        INPUT,
        &["missing.png"],
    );
    refused(&place, &[CLIP, "--mask", CLIP], INPUT, &["still"]);
}

#[test]
fn weights_that_do_not_fit() {
    let place = Place::new();
    let whole = std::fs::read(WEIGHTS).unwrap();
    place.write("half.safetensors", &whole[..whole.len() / 2]);
    place.write("head.safetensors", &whole[..100]);
    place.write("empty.safetensors", "");
    place.write("text.ckpt", "no checkpoint");
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut other = (header.len() as u64).to_le_bytes().to_vec();
    other.extend(header);
    other.extend([0; 4]);
    place.write("other.safetensors", other);
    for file in [
        "missing.ckpt",
        "half.safetensors",
        "head.safetensors",
        "empty.safetensors",
        "text.ckpt",
        "other.safetensors",
    ] {
        refused(
            &place,
            &[CLIP, "--weights", file],
            WEIGHTS_DO_NOT_FIT,
            &[file],
        );
    }
    refused(
        &place,
        &[CLIP, "--model", "locotrack-base"],
        WEIGHTS_DO_NOT_FIT,
        &["locotrack-base"],
    );
}

#[test]
fn outputs_that_cannot_be_written() {
    let place = Place::new();
    place.write("file", "");
    std::fs::create_dir(place.path("folder.json")).unwrap();
    for (output, word) in [
        ("no/such/folder.json", "folder"),
        ("file/a.json", "folder"),
        ("folder.json", "it is a folder"),
        ("a.xlsx", ".npz"),
        ("a", ".npz"),
    ] {
        refused(&place, &[CLIP, "-o", output], USAGE, &[output, word]);
    }
    for overlay in ["no/such/folder.mp4", "a.webp", "a"] {
        refused(&place, &[CLIP, "--overlay", overlay], USAGE, &[overlay]);
    }
    refused(
        &place,
        &[CLIP, "-o", "a.csv", "-o", "./a.csv"],
        USAGE,
        &["twice"],
    );
    // A file system that takes no files, whoever asks.
    if cfg!(target_os = "linux") {
        refused(
            &place,
            &[CLIP, "-o", "/proc/a.json"],
            USAGE,
            &["/proc/a.json"],
        );
        refused(
            &place,
            &[CLIP, "--overlay", "/proc/a.mp4"],
            USAGE,
            &["/proc/a.mp4"],
        );
    }
}

#[test]
fn the_input_is_never_replaced() {
    let place = Place::new();
    std::fs::copy(CLIP, place.path("clip.mp4")).unwrap();
    let arguments = ["clip.mp4", "--grid", "1", "--overlay", "./clip.mp4"];
    refused(&place, &arguments, USAGE, &["is the input"]);
    place.write("points.csv", "t,x,y\n0,1,1\n");
    let arguments = [
        "clip.mp4",
        "--points-file",
        "points.csv",
        "-o",
        "points.csv",
    ];
    refused(&place, &arguments, USAGE, &["is the input"]);
    assert_eq!(place.read("clip.mp4"), std::fs::read(CLIP).unwrap());
}

#[test]
fn what_the_device_cannot_do() {
    let place = Place::new();
    for dtype in ["f16", "bf16", "tf32"] {
        let arguments = [CLIP, "--device", "cpu", "--dtype", dtype];
        refused(&place, &arguments, DEVICE, &[dtype, "f32"]);
    }
    // An eighth device is not there whatever this build and machine are.
    refused(&place, &[CLIP, "--device", "cuda:99"], DEVICE, &["cuda:99"]);
}

#[test]
fn ranges_without_frames() {
    let place = Place::new();
    for range in [["5", "5"], ["5", "3"], ["2s", "1s"], ["400", "500"]] {
        let arguments = [CLIP, "--start", range[0], "--end", range[1]];
        refused(&place, &arguments, USAGE, &[]);
    }
    refused(&place, &[CLIP, "--start", "soon"], USAGE, &["soon"]);
}

#[test]
fn bad_usage() {
    let place = Place::new();
    assert_eq!(place.run(&[]).status.code(), Some(USAGE));
    for arguments in [
        &[CLIP, "--no-such-flag"][..],
        &[CLIP, "--dtype", "fp16"],
        &[CLIP, "--device", "gpu"],
        &[CLIP, "--model", "raft"],
        &[CLIP, "--resolution", "0x0"],
        &[CLIP, "--threads", "0"],
        &[CLIP, "-q", "-v"],
        &["-q", "doctor"],
        &[CLIP, "--points", "0,1,1", "--query-frame", "3"],
    ] {
        refused(&place, arguments, USAGE, &[]);
    }
}
