//! What the default weights answer on the shipped 47-frame clip, against what they answered before.
//!
//! `cargo xtask golden` compares and prints how far the numbers moved; `cargo xtask golden --bless` records the new
//! ones. The same build on the same machine gives the same bytes; other processors sum in another order and other
//! FFmpeg versions may round a colour differently, which is what the tolerances are for.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use track::golden::{self, CheckOptions, Golden, Outcome, RecordOptions, Tolerance, Verdict};
use track::{DeviceChoice, FrameRange, Precision, Queries, QueryPoint, Tracker, Watch};
use track_tests::reference;

fn recorded() -> Golden {
    Golden::open(reference::path("golden")).unwrap()
}

#[test]
fn default_weights_on_the_shipped_clip() {
    let golden = recorded();
    let tracker = golden.builder().device(DeviceChoice::Cpu).build().unwrap();
    let check = golden::check(&golden, &tracker, &CheckOptions::default(), &Watch::new()).unwrap();
    println!("{check}");
    assert!(
        check.verdict() <= Verdict::Within,
        "the tracks moved; look at them, then `cargo xtask golden --bless`\n{check}"
    );
}

#[test]
fn the_recorded_folder_is_what_it_should_be() {
    let golden = recorded();
    // A looser tolerance would let anything pass.
    let stated = Tolerance {
        median_px: 1e-3,
        p99_px: 0.02,
        logit: Some(0.05),
        visible_equal: 0.999,
    };
    assert_eq!(golden.tolerance(Precision::F32), stated);
    let sizes: Vec<_> = golden
        .clips()
        .iter()
        .map(|c| (c.frames, c.points))
        .collect();
    assert_eq!(sizes, [(47, 73)]);
    assert_eq!(golden.recorded().weights, track::default_weights());
    assert_eq!(golden.recorded().precision, "f32");
}

#[test]
fn what_is_recorded_is_compared_with_what_is_tracked() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("goldens");
    let clips = [reference::path("../assets/pedestrians_47f_256x256.mp4")];
    let tracker = Tracker::builder()
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap();
    let options = RecordOptions {
        range: "2..6".parse::<FrameRange>().unwrap(),
        ..Default::default()
    };
    let points = |x: f32| Queries::points([QueryPoint::new(1.0, x, 100.0)]);
    let record = |x: f32, replace: bool| {
        let options = RecordOptions {
            replace,
            ..options.clone()
        };
        golden::record(
            &tracker,
            &clips,
            &points(x),
            &folder,
            &options,
            &Watch::new(),
        )
        .unwrap()
    };
    let check = |golden: &Golden| {
        golden::check(golden, &tracker, &CheckOptions::default(), &Watch::new()).unwrap()
    };
    assert_eq!(check(&record(60.0, false)).verdict(), Verdict::Equal);
    // The numbers of one point beside those of another, eight pixels away.
    let other = std::fs::read(folder.join("pedestrians_47f_256x256.safetensors")).unwrap();
    let golden = record(68.0, true);
    let found = check(&golden);
    assert_eq!(found.verdict(), Verdict::Equal);
    assert!(
        matches!(&found.clips[0].outcome, Outcome::Compared { differences, .. } if differences.identical)
    );
    std::fs::write(folder.join("pedestrians_47f_256x256.safetensors"), other).unwrap();
    assert_eq!(check(&golden).verdict(), Verdict::Unchecked);
}
