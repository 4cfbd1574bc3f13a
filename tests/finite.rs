//! `check_finite`: the first layer that gives something else than numbers is named, and nothing else changes.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use candle_core::{Device, Tensor};
use track_model::{
    Context, Error, Precision, Query, RawTracks, SessionOptions, Size, WeightSource, load,
};
use track_tests::formula::clip;
use track_tests::reference;

const FRAMES: usize = 5;

/// Tracks two points at a time with the default weights, the first value of `tensor` replaced.
fn track(change: Option<(&str, f32)>, check_finite: bool) -> Result<RawTracks, Error> {
    let default = reference::path("../models/locotrack_small.safetensors");
    let folder = tempfile::tempdir().unwrap();
    let mut file = default.clone();
    if let Some((name, value)) = change {
        let mut tensors = candle_core::safetensors::load(&default, &Device::Cpu).unwrap();
        let tensor = &tensors[name];
        let (shape, dtype) = (tensor.shape().clone(), tensor.dtype());
        let flat = tensor
            .flatten_all()
            .unwrap()
            .to_dtype(candle_core::DType::F32);
        let mut values = flat.unwrap().to_vec1::<f32>().unwrap();
        values[0] = value;
        let changed = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
        tensors.insert(name.to_owned(), changed.to_dtype(dtype).unwrap());
        file = folder.path().join("changed.safetensors");
        candle_core::safetensors::save(&tensors, &file).unwrap();
    }
    let device = track_model::Device::Cpu;
    let model = load(&WeightSource::File(file), None, &device, Precision::F32).unwrap();
    let size = Size {
        width: 96,
        height: 64,
    };
    let options = SessionOptions {
        check_finite,
        query_chunk: Some(2),
        ..Default::default()
    };
    let mut session = model.session(size, &options, Context::default())?;
    session.push(&clip(FRAMES, 64, 96).unwrap())?;
    let at = |t: f32, x: f32| Query { t, x, y: 30.0 };
    session.track(&[at(0.0, 20.0), at(1.0, 40.0), at(4.0, 70.0)])
}

#[test]
fn the_layer_whose_weights_are_bad_is_named() {
    let block = |rest: &str| format!("resnet_torch.block_groups.{rest}");
    let transformer = |rest: &str| format!("torch_pips_mixer.{rest}");
    for (tensor, value, layer, place) in [
        (
            "resnet_torch.initial_conv.weight".to_owned(),
            f32::NAN,
            "encoder.stem",
            "frames 0 to 3",
        ),
        (
            block("2.blocks.0.conv_0.weight"),
            f32::NAN,
            "encoder.group2.conv3x3",
            "frames 0 to 3",
        ),
        (
            block("1.blocks.0.proj_conv.weight"),
            f32::INFINITY,
            "encoder.group1.shortcut",
            "frames 0 to 3",
        ),
        (
            block("3.blocks.1.bn_1.bias"),
            f32::INFINITY,
            "encoder.group3.norm",
            "frames 0 to 3",
        ),
        (
            "cost_conv.bias".to_owned(),
            f32::NAN,
            "initial.cost_volume",
            "points 0 to 1 in the first estimate",
        ),
        (
            "cmdtop.1.conv.0.0.weight".to_owned(),
            f32::NAN,
            "refine.correlation",
            "points 0 to 1 in refinement 1",
        ),
        (
            transformer("input_proj.bias"),
            f32::NEG_INFINITY,
            "refine.input",
            "refinement 1",
        ),
        (
            transformer("transformer.layers.1.layer_norm1.weight"),
            f32::INFINITY,
            "refine.norm",
            "refinement 1",
        ),
        (
            transformer("transformer.layers.0.attn.query_proj.bias"),
            f32::NAN,
            "refine.qkv",
            "refinement 1",
        ),
        (
            transformer("transformer.layers.2.attn.final_proj.bias"),
            f32::NAN,
            "refine.project",
            "refinement 1",
        ),
        (
            transformer("transformer.layers.2.dense.2.bias"),
            f32::NAN,
            "refine.dense",
            "refinement 1",
        ),
        (
            transformer("output_proj.bias"),
            f32::NAN,
            "refine.output",
            "refinement 1",
        ),
    ] {
        let error = track(Some((&tensor, value)), true).expect_err(&tensor);
        let Error::NotFinite {
            layer: found,
            place: at,
            precision,
        } = &error
        else {
            panic!("{tensor}: {error}");
        };
        assert_eq!(
            (found.as_str(), *precision),
            (layer, Precision::F32),
            "{tensor}"
        );
        assert!(at.contains(place), "{tensor}: {at}");
        assert!(
            error.to_string().starts_with(&format!(
                "the layer {layer} gave values that are not finite in f32 on "
            )),
            "{error}"
        );
    }
}

#[test]
fn without_the_check_nothing_is_looked_at() {
    let bad = Some(("torch_pips_mixer.output_proj.bias", f32::NAN));
    let tracks = track(bad, false).unwrap();
    let x = tracks
        .positions
        .flatten_all()
        .unwrap()
        .to_vec1::<f32>()
        .unwrap();
    assert!(x.iter().any(|v| v.is_nan()));
}

#[test]
fn the_check_changes_no_number() {
    let values = |check| {
        let tracks = track(None, check).unwrap();
        tracks
            .positions
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>()
            .unwrap()
    };
    assert_eq!(values(true), values(false));
}
