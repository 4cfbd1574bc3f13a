//! Explanations of a made-up report, against arithmetic by hand and a text that was read.

use track_profile::devices::Device;
use track_profile::explain::{Explanation, Observation, explain};
use track_profile::record::BenchReport;

/// A report with the costs of LocoTrack-base, 47 frames of 256×256, 256 points; its times are made up.
const REPORT: &str = include_str!("data/h200.json");

fn report() -> BenchReport {
    serde_json::from_str(REPORT).unwrap()
}

fn on(names: &[&str]) -> Explanation {
    let devices: Vec<_> = names
        .iter()
        .map(|name| Device::named(name).unwrap())
        .collect();
    explain(&report(), &devices, &[]).unwrap()
}

#[test]
fn the_text_of_a_report() {
    insta::assert_snapshot!(on(&["t4", "a100"]).text(false));
}
