//! `track explain` as a user runs it.

// A test that fails here has found what it looks for.
#![allow(clippy::unwrap_used)]

mod common;

use common::Place;
use serde_json::Value;

/// A report with the costs of LocoTrack-base on made-up times.
const REPORT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profile/tests/data/h200.json"
);

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn names(explanation: &Value) -> Vec<&str> {
    let devices = explanation["devices"].as_array().unwrap();
    devices
        .iter()
        .map(|d| d["device"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn a_report_is_carried_over_to_a_t4_and_an_a100() {
    let place = Place::new();
    let said = place.ok(&["explain", REPORT]);
    for expected in [
        "## NVIDIA H200 (this report's)",
        "## NVIDIA T4",
        "## NVIDIA A100 40GB",
        "Pick f16",
        "65 against 8.1 TFLOP/s: 8.0 times the rate",
        "It has no tf32 and no bf16.",
        "### What the hardware explains",
        "170 times",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("refine.dense"), "{said}");
    assert!(said.lines().all(|l| l.chars().count() <= 120), "{said}");
    let layers = place.ok(&["explain", REPORT, "--layers"]);
    assert!(layers.contains("refine.dense"), "{layers}");
}

#[test]
fn devices_are_chosen_by_name() {
    let place = Place::new();
    let found = |more: &[&str]| {
        let said = place.ok(&[&["explain", REPORT, "--json"], more].concat());
        let value = json(&said);
        assert_eq!(value["schema"], "track-explain/1");
        names(&value)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&[]), ["h200", "t4", "a100"]);
    assert_eq!(found(&["--on", "L4,rtx-4090"]), ["h200", "l4", "rtx4090"]);
    assert_eq!(found(&["--on", "h200"]), ["h200"]);
    assert_eq!(
        found(&["--on", "v100", "--on", "t4"]),
        ["h200", "v100", "t4"]
    );
    assert_eq!(found(&["--observed", "a10=1s"]), ["h200", "a10"]);
    assert_eq!(found(&["--on", "all"]).len(), 14);
}

#[test]
fn floors_in_json_sum_up_and_name_their_bound() {
    let place = Place::new();
    let value = json(&place.ok(&["explain", REPORT, "--json", "--on", "t4"]));
    let t4 = &value["devices"][1];
    let precisions = t4["precisions"].as_array().unwrap();
    let dtypes: Vec<_> = precisions
        .iter()
        .map(|p| p["dtype"].as_str().unwrap())
        .collect();
    assert_eq!(dtypes, ["f32", "f16"]);
    for p in precisions {
        let layers = p["layers"].as_array().unwrap();
        let sum: f64 = layers.iter().map(|l| l["floor_ms"].as_f64().unwrap()).sum();
        let total = p["floor_ms"].as_f64().unwrap();
        assert!((sum - total).abs() < 1e-9 * total);
        assert!(p["predicted_ms"].as_f64().unwrap() > total);
    }
    assert_eq!(t4["pick"], "f16");
    assert!(value["comparison"].is_null());
}

#[test]
fn observed_times_are_compared() {
    let place = Place::new();
    let observed = ["--observed", "t4=85s,a100=500ms"];
    let value = json(&place.ok(&[&["explain", REPORT, "--json"], &observed[..]].concat()));
    let pair = &value["comparison"]["pair"];
    assert_eq!(pair["ratio"], 170.0);
    assert_eq!(pair["slow"], "t4");
    assert_eq!(value["comparison"]["public"], false);
    let said = place.ok(&[&["explain", REPORT], &observed[..]].concat());
    assert!(
        said.contains("Given, and taken for f32: 85.0 s on NVIDIA T4"),
        "{said}"
    );
    let twice = ["explain", REPORT, "--observed", "t4=1s,T4=2s"];
    assert!(place.refused(&twice, 2).contains("two times for t4"));
    let bare = ["explain", REPORT, "--observed", "t4=85"];
    assert!(place.refused(&bare, 2).contains("t4=85s"));
}

#[test]
fn the_table_of_devices_reads_back_as_a_device_of_ones_own() {
    let place = Place::new();
    let table = place.ok(&["explain", "--devices"]);
    assert!(
        table.contains("mi250x-gcd") && table.contains("source: NVIDIA T4"),
        "{table}"
    );
    let devices = json(&place.ok(&["explain", "--devices", "--json"]));
    let mut mine = devices[0].clone();
    mine["name"] = "mine".into();
    mine["title"] = "My card".into();
    place.write("mine.json", mine.to_string());
    let said = place.ok(&["explain", REPORT, "--device-file", "mine.json"]);
    assert!(
        said.contains("## My card") && !said.contains("## NVIDIA T4"),
        "{said}"
    );
    let arguments = [
        "explain",
        REPORT,
        "--device-file",
        "mine.json",
        "--observed",
        "mine=3s,l4=1s",
    ];
    let said = place.ok(&arguments);
    assert!(said.contains("3.00 s on My card"), "{said}");
    // A device that has the name of a listed one takes its place.
    mine["name"] = "t4".into();
    place.write("mine.json", mine.to_string());
    let said = place.ok(&[
        "explain",
        REPORT,
        "--device-file",
        "mine.json",
        "--on",
        "t4",
    ]);
    assert!(
        said.contains("## My card") && !said.contains("## NVIDIA T4"),
        "{said}"
    );
    // What makes no sense is named.
    mine["bandwidth_gbs"] = 0.into();
    place.write("mine.json", mine.to_string());
    let refused = place.refused(&["explain", REPORT, "--device-file", "mine.json"], 3);
    assert!(
        refused.contains("bandwidth_gbs must be above 0"),
        "{refused}"
    );
    place.write("mine.json", "{\"name\": \"x\"}");
    let refused = place.refused(&["explain", REPORT, "--device-file", "mine.json"], 3);
    assert!(refused.contains("missing field"), "{refused}");
}

#[test]
fn what_cannot_be_explained_is_refused_in_a_sentence() {
    let place = Place::new();
    let unknown = place.refused(&["explain", REPORT, "--on", "t5"], 2);
    assert!(
        unknown.contains("\"t5\"") && unknown.contains("t4, a10, l4"),
        "{unknown}"
    );
    assert!(place.refused(&["explain"], 2).contains("REPORT"));
    let missing = place.refused(&["explain", "none.json"], 3);
    assert!(missing.contains("none.json cannot be read"), "{missing}");
    let refused = |content: &[u8]| {
        place.write("r.json", content);
        place.refused(&["explain", "r.json"], 3)
    };
    assert!(refused(b"frame,x,y\n").contains("not JSON"));
    assert!(refused(b"\xff\xfe").contains("cannot be read"));
    assert!(refused(b"[1, 2]").contains("has no schema"));
    assert!(refused(b"{\"schema\": \"track/1\"}").contains("has the schema \"track/1\""));
    assert!(refused(b"{\"schema\": \"track-bench/1\"}").contains("missing field"));
    // Cut anywhere, it is refused; so is one whose numbers make no sense.
    let whole = std::fs::read(REPORT).unwrap();
    for cut in (0..whole.len() - 2).step_by(whole.len() / 20) {
        refused(&whole[..cut]);
    }
    let mut value: Value = serde_json::from_slice(&whole).unwrap();
    value["ceilings"]["bandwidth_gbs"] = (-1.0).into();
    assert!(refused(value.to_string().as_bytes()).contains("ceilings"));
    let mut value: Value = serde_json::from_slice(&whole).unwrap();
    value["precisions"] = Value::Array(Vec::new());
    assert!(refused(value.to_string().as_bytes()).contains("no precision"));
}
