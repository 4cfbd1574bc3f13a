//! The program end to end on a real clip, its outputs read back by other means.

mod common;

use std::process::{Command, Stdio};

use common::{CLIP, Place, pgm};
use ndarray::{Array1, Array2, Array3};
use ndarray_npy::NpzReader;
use serde_json::Value;
use track::{Clip, Tracks};

/// Few frames and points, to keep a test short.
const SHORT: [&str; 5] = [CLIP, "--end", "5", "--grid", "2"];

#[allow(clippy::unwrap_used)]
fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn without_outputs_a_table_and_a_picture_appear_here() {
    let place = Place::new();
    std::fs::copy(CLIP, place.path("street.mp4")).unwrap();
    let said = place.ok(&["street.mp4", "--end", "4", "--grid", "3"]);
    assert_eq!(
        place.names(),
        ["street.mp4", "street.tracks.json", "street.tracks.mp4"]
    );
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() <= 6, "{said}");
    assert!(
        lines[0].starts_with("9 points on 4 frames of 256×256"),
        "{said}"
    );
    assert!(said.contains("% visible") && said.contains("street.tracks.mp4"));
}

#[test]
fn the_three_forms_say_the_same() {
    let place = Place::new();
    let forms = ["-o", "a.json", "-o", "a.csv", "-o", "a.npz"];
    place.ok(&[&SHORT[..], &forms, &["--start", "1"]].concat());
    assert_eq!(place.names(), ["a.csv", "a.json", "a.npz"]);
    let tracks = Tracks::read_json(place.path("a.json")).unwrap();
    assert_eq!((tracks.frames(), tracks.points()), (4, 4));
    assert_eq!(tracks.frame_indices, [1, 2, 3, 4]);
    assert_eq!(tracks.position(0, 0), Some((64.0, 64.0)));
    let value = json(&place.read("a.json"));
    assert_eq!(value["schema"], "track/1");
    assert_eq!(value["pixel_origin"], "corner");
    assert_eq!(value["provenance"]["model"], "locotrack-small");
    assert_eq!(value["provenance"]["clip"]["range"], "1..5");

    let file = std::fs::File::open(place.path("a.npz")).unwrap();
    let mut npz = NpzReader::new(file).unwrap();
    let positions: Array3<f32> = npz.by_name("tracks").unwrap();
    assert_eq!(positions, tracks.positions);
    let visible: Array2<bool> = npz.by_name("visibility").unwrap();
    assert_eq!(visible, tracks.visible);
    let times: Array1<f64> = npz.by_name("times").unwrap();
    assert_eq!(times.to_vec(), tracks.times);
    let queries: Array2<f32> = npz.by_name("queries").unwrap();
    assert_eq!(queries.row(3).to_vec(), [0.0, 192.0, 192.0]);
    let logits: Array2<f32> = npz.by_name("occlusion").unwrap();
    assert_eq!(logits, tracks.occlusion);

    let mut csv = csv::Reader::from_path(place.path("a.csv")).unwrap();
    let header = csv.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let rows: Vec<_> = csv.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 16);
    for (k, row) in rows.iter().enumerate() {
        let (t, n) = (k / 4, k % 4);
        let number = |name: &str| row[column(name)].parse::<f32>().unwrap();
        assert_eq!((number("frame"), number("point")), (t as f32, n as f32));
        assert_eq!((number("x"), number("y")), tracks.position(t, n).unwrap());
        assert_eq!(number("visible") == 1.0, tracks.visible[[t, n]]);
        assert_eq!(number("source_frame"), tracks.frame_indices[t] as f32);
        let status = if t == 0 { "query" } else { "tracked" };
        assert_eq!(&row[column("status")], status);
    }
}

#[test]
fn an_overlay_has_exactly_the_frames_and_times_of_its_part() {
    let place = Place::new();
    let arguments = [
        "--start",
        "2",
        "-o",
        "a.json",
        "--overlay",
        "a.mp4",
        "--overlay",
        "a.png",
    ];
    place.ok(&[&SHORT[..], &arguments].concat());
    let times = Tracks::read_json(place.path("a.json")).unwrap().times;
    let overlay = Clip::open(place.path("a.mp4")).unwrap();
    let drawn: Vec<_> = overlay.frames().unwrap().map(|f| f.unwrap().time).collect();
    let close = |a: &[f64], b: &[f64]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
    };
    assert!(close(&drawn, &times), "{drawn:?} {times:?}");
    assert!(place.read("a.png").starts_with(b"\x89PNG\r\n\x1a\n"));

    let probe = Command::new("ffprobe")
        .args([
            "-v",
            "error",
            "-select_streams",
            "v",
            "-show_entries",
            "frame=pts_time",
        ])
        .args(["-of", "csv=p=0"])
        .arg(place.path("a.mp4"))
        .output();
    let Ok(probe) = probe else {
        eprintln!("skipped in part: there is no ffprobe here");
        return;
    };
    let text = String::from_utf8(probe.stdout).unwrap();
    let seen: Vec<f64> = text
        .lines()
        .filter_map(|l| l.trim().trim_end_matches(',').parse().ok())
        .collect();
    assert!(close(&seen, &times), "{seen:?} {times:?}");
}

#[test]
fn the_same_run_gives_the_same_bytes_whatever_the_threads() {
    let outputs = [
        "-o",
        "a.json",
        "-o",
        "a.npz",
        "-o",
        "a.csv",
        "--overlay",
        "a.gif",
    ];
    let run = |threads: &str| {
        let place = Place::new();
        place.ok(&[&SHORT[..], &outputs, &["--threads", threads]].concat());
        ["a.json", "a.npz", "a.csv", "a.gif"].map(|name| place.read(name))
    };
    let first = run("2");
    assert!(run("2") == first, "a second run differs");
    assert!(run("1") == first, "one thread differs from two");
}

#[test]
fn one_frame_is_a_video() {
    let place = Place::new();
    let outputs = ["-o", "a.json", "--overlay", "a.mp4", "--overlay", "a.png"];
    place.ok(&[&[CLIP, "--end", "1", "--grid", "2"][..], &outputs].concat());
    let tracks = Tracks::read_json(place.path("a.json")).unwrap();
    assert_eq!((tracks.frames(), tracks.visible_share()), (1, 1.0));
    let overlay = Clip::open(place.path("a.mp4")).unwrap();
    assert_eq!(overlay.frames().unwrap().count(), 1);

    place.write("still.pgm", pgm(40, 30, |x, y| (x + y) % 7 < 3));
    place.ok(&["still.pgm", "--points", "0,40,30", "-o", "still.json"]);
    let tracks = Tracks::read_json(place.path("still.json")).unwrap();
    assert_eq!(tracks.position(0, 0), Some((40.0, 30.0)));
}

#[test]
fn points_come_from_the_command_line_a_file_and_a_mask() {
    let place = Place::new();
    place.write("a.csv", "label,y,x,t\nnose,20,10,1\n");
    place.write("b.json", r#"[{"t": 2.4, "x": 5.5, "y": 6.5}]"#);
    place.write("mask.pgm", pgm(256, 256, |x, y| x >= 100 && y >= 200));
    let read = |arguments: &[&str]| {
        let all = [&[CLIP, "--end", "4", "-o", "out.json"], arguments].concat();
        place.ok(&all);
        Tracks::read_json(place.path("out.json")).unwrap()
    };
    let tracks = read(&["--points-file", "a.csv", "--points", "3,256,0"]);
    assert_eq!(tracks.position(3, 0), Some((256.0, 0.0)));
    assert_eq!(tracks.position(1, 1), Some((10.0, 20.0)));
    assert_eq!(tracks.queries[1].label.as_deref(), Some("nose"));
    let tracks = read(&["--points-file", "b.json"]);
    assert_eq!(tracks.position(2, 0), Some((5.5, 6.5)));
    let tracks = read(&["--mask", "mask.pgm", "--grid", "2", "--query-frame", "3"]);
    assert_eq!(tracks.points(), 4);
    assert_eq!(tracks.position(3, 0), Some((139.0, 214.0)));
}

#[test]
fn the_summary_for_machines_is_json_and_quiet_is_quiet() {
    let place = Place::new();
    let arguments = [&SHORT[..], &["-o", "a.csv"]].concat();
    let summary = place.ok(&[&arguments[..], &["--json"]].concat());
    let summary = json(summary.as_bytes());
    assert_eq!(summary["schema"], "track-summary/1");
    assert_eq!(
        (&summary["points"], &summary["frames"]),
        (&4.into(), &5.into())
    );
    assert_eq!(summary["outputs"][0], "a.csv");
    assert!(summary["visible_share"].as_f64().unwrap() > 0.0);
    let output = place.run(&[&arguments[..], &["-q"]].concat());
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn verbose_shows_what_layers_cost() {
    let place = Place::new();
    let output = place.run(&[&SHORT[..], &["-o", "a.csv", "-v"]].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("GFLOP/s"), "{errors}");
    assert!(!errors.contains('\u{1b}'), "colours in a pipe: {errors}");
}

#[test]
fn a_warning_is_said_once_and_kept() {
    let place = Place::new();
    let whole = std::fs::read(CLIP).unwrap();
    // The index of this file is at its front, so the frames before the cut are there.
    place.write("half.mp4", &whole[..whole.len() / 2]);
    let arguments = [
        "half.mp4",
        "--grid",
        "2",
        "-o",
        "a.json",
        "--overlay",
        "a.gif",
    ];
    let output = place.run(&arguments);
    assert!(output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    let mut lines: Vec<_> = errors.lines().collect();
    assert!(!lines.is_empty());
    assert!(
        lines.iter().all(|l| l.starts_with("warning: half.mp4: ")),
        "{errors}"
    );
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "{errors}");
    let tracks = Tracks::read_json(place.path("a.json")).unwrap();
    assert!(tracks.frames() < 47 && !tracks.warnings.is_empty());
}

#[test]
fn small_commands_answer() {
    let place = Place::new();
    assert!(place.ok(&["--version"]).starts_with("track "));
    let help = place.ok(&["--help"]);
    for word in ["Examples:", "Exit codes:", "--points", "Points:", "Output:"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(place.ok(&["completions", "bash"]).contains("_track"));
    assert!(place.ok(&["models"]).contains("locotrack-base"));
    let models = json(place.ok(&["models", "--json"]).as_bytes());
    let sum = models[0]["built_in"]["sha256"].as_str().unwrap();
    assert!(place.ok(&["doctor"]).contains(sum));
    let doctor = json(place.ok(&["doctor", "--json"]).as_bytes());
    assert_eq!(doctor["weights_load"]["Ok"], "yes");
    assert_eq!(place.names().len(), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_track"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_run_and_leaves_nothing() {
    use std::time::{Duration, Instant};

    let place = Place::new();
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/pedestrians.mp4");
    let child = Command::new(env!("CARGO_BIN_EXE_track"))
        // A run of a minute or so, at the least.
        .args([clip, "--grid", "40"])
        .current_dir(place.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert_eq!(errors, "error: tracking was cancelled\n");
    assert_eq!(place.names().len(), 0);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}
