//! Our numbers against those of the published implementation, at every stage it was recorded at.
//!
//! Run with `--nocapture` to see the largest difference of each stage beside what is allowed.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use candle_core::{Device, Tensor};
use track_model::{
    Context, ModelKind, Observer, PointTracker, Precision, Query, Resolution, SessionOptions, Size,
    WeightSource, load,
};
use track_tests::formula::{Variant, clip, weights};
use track_tests::reference::{self, largest_difference};

/// What is allowed at each stage (`tests/reference/README.md`).
const GRID: f64 = 2e-6;
const FIRST_TRACKS: f64 = 3e-4;
const FIRST_LOGITS: f64 = 2e-6;
const SECOND_LOGITS: f64 = 6e-5;
const FINAL: f64 = 5e-4;

/// Keeps every stage's tensor.
#[derive(Default)]
struct Stages(Mutex<BTreeMap<String, Tensor>>);

impl Observer for Stages {
    fn wants_stages(&self) -> bool {
        true
    }

    fn stage(&self, name: &str, tensor: &Tensor) {
        self.0
            .lock()
            .unwrap()
            .insert(name.to_owned(), tensor.clone());
    }
}

fn model(kind: ModelKind, variant: Variant) -> Box<dyn PointTracker> {
    let tensors = weights(&kind.tensors(), variant).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("formula.safetensors");
    candle_core::safetensors::save(&tensors, &file).unwrap();
    load(
        &WeightSource::File(file),
        None,
        &track_model::Device::Cpu,
        Precision::F32,
    )
    .unwrap()
}

fn queries(reference: &HashMap<String, Tensor>) -> Vec<Query> {
    let rows = reference["queries_tyx"].to_vec2::<f32>().unwrap();
    rows.into_iter()
        .map(|q| Query {
            t: q[0],
            y: q[1],
            x: q[2],
        })
        .collect()
}

/// Runs a case and returns its stages, final results under their bare names.
fn run(
    kind: ModelKind,
    variant: Variant,
    size: (usize, usize, usize),
    resolution: Resolution,
    queries: &[Query],
) -> BTreeMap<String, Tensor> {
    let model = model(kind, variant);
    let stages = Stages::default();
    let (frames, height, width) = size;
    let options = SessionOptions {
        resolution,
        ..Default::default()
    };
    let raw = {
        let context = Context {
            observer: &stages,
            ..Default::default()
        };
        let mut session = model
            .session(Size { width, height }, &options, context)
            .unwrap();
        session.push(&clip(frames, height, width).unwrap()).unwrap();
        session.track(queries).unwrap()
    };
    let mut all = stages.0.into_inner().unwrap();
    all.insert("tracks".to_owned(), raw.positions);
    all.insert("occlusion".to_owned(), raw.occlusion);
    all.insert("expected_dist".to_owned(), raw.expected_dist);
    all
}

/// The part of a stage that the reference holds.
fn recorded(name: &str, tensor: &Tensor, want: &Tensor) -> Tensor {
    if name.starts_with("grid.") {
        // Frames 0 and 4, every 8th row and column.
        let every_8th = |size: usize| {
            Tensor::from_vec(
                (0..size as u32).step_by(8).collect(),
                size.div_ceil(8),
                &Device::Cpu,
            )
        };
        let (_, h, w, _) = tensor.dims4().unwrap();
        let frames = tensor
            .index_select(&Tensor::new(&[0u32, 4], &Device::Cpu).unwrap(), 0)
            .unwrap();
        let rows = frames.index_select(&every_8th(h).unwrap(), 1).unwrap();
        rows.index_select(&every_8th(w).unwrap(), 2).unwrap()
    } else if name.starts_with("support.") {
        tensor.narrow(0, 0, want.dims()[0]).unwrap()
    } else {
        tensor.clone()
    }
}

fn allowed(name: &str) -> f64 {
    match name {
        _ if name.starts_with("grid.") || name.starts_with("support.") => GRID,
        "iter0.tracks" => FIRST_TRACKS,
        "iter0.occlusion" | "iter0.expected_dist" => FIRST_LOGITS,
        "iter1.occlusion" | "iter1.expected_dist" => SECOND_LOGITS,
        _ => FINAL,
    }
}

fn check(
    file: &str,
    kind: ModelKind,
    variant: Variant,
    size: (usize, usize, usize),
    resolution: Resolution,
) {
    let reference = reference::load(file);
    let got = run(kind, variant, size, resolution, &queries(&reference));
    let mut names: Vec<_> = reference
        .keys()
        .filter(|k| k.contains("tracks") || !k.contains("queries"))
        .collect();
    names.sort();
    let mut failed = Vec::new();
    for name in names {
        let want = &reference[name];
        if name == "occluded" {
            let occluded = occluded(&got);
            assert_eq!(
                occluded,
                want.flatten_all().unwrap().to_vec1::<u8>().unwrap(),
                "{file}: occluded"
            );
            println!("{file:55} {name:22} equal in all {}", occluded.len());
            continue;
        }
        let difference = largest_difference(&recorded(name, &got[name], want), want);
        println!(
            "{file:55} {name:22} {difference:9.2e} of {:.0e}",
            allowed(name)
        );
        if difference > allowed(name) {
            failed.push(format!(
                "{name} is off by {difference:.2e}, allowed {:.0e}",
                allowed(name)
            ));
        }
    }
    assert!(failed.is_empty(), "{file}: {}", failed.join("; "));
}

/// The published rule, from our logits.
fn occluded(got: &BTreeMap<String, Tensor>) -> Vec<u8> {
    let values = |name: &str| got[name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let sigmoid = |v: f32| 1.0 / (1.0 + (-v).exp());
    let rule = |(o, e): (f32, f32)| u8::from(1.0 - (1.0 - sigmoid(o)) * (1.0 - sigmoid(e)) > 0.5);
    values("occlusion")
        .into_iter()
        .zip(values("expected_dist"))
        .map(rule)
        .collect()
}

use ModelKind::{LocoTrackBase as Base, LocoTrackSmall as Small};

#[test]
fn small_every_stage() {
    check(
        "locotrack_small_8f_256x256_n12",
        Small,
        Variant::Plain,
        (8, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn base_every_stage() {
    check(
        "locotrack_base_8f_256x256_n12",
        Base,
        Variant::Plain,
        (8, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn small_tracks_all_over_the_picture() {
    check(
        "locotrack_small_8f_256x256_n12_centred",
        Small,
        Variant::Centred,
        (8, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn base_tracks_all_over_the_picture() {
    check(
        "locotrack_base_8f_256x256_n12_centred",
        Base,
        Variant::Centred,
        (8, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn small_47_frames() {
    check(
        "locotrack_small_47f_256x256_n64",
        Small,
        Variant::Plain,
        (47, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn base_47_frames() {
    check(
        "locotrack_base_47f_256x256_n64",
        Base,
        Variant::Plain,
        (47, 256, 256),
        Resolution::Model,
    );
}

#[test]
fn small_refined_on_a_clip_above_256() {
    check(
        "locotrack_small_6f_384x512_n8",
        Small,
        Variant::Plain,
        (6, 384, 512),
        Resolution::Clip,
    );
}

#[test]
fn base_refined_on_a_clip_above_256() {
    check(
        "locotrack_base_6f_384x512_n8_centred",
        Base,
        Variant::Centred,
        (6, 384, 512),
        Resolution::Clip,
    );
}

#[test]
fn base_as_the_inference_helper_resizes_and_thresholds() {
    let file = "locotrack_base_inference_8f_180x320_n12_centred";
    check(
        file,
        Base,
        Variant::Inference,
        (8, 180, 320),
        Resolution::Model,
    );
}
