//! Weights in every wrapping that people have them in, and what is said of those that do not fit.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use track_model::{Error, ModelKind, Precision, WeightSource, load};
use track_tests::formula::{Variant, weights};
use track_tests::reference;

fn open(path: PathBuf, expected: Option<ModelKind>) -> Result<ModelKind, Error> {
    load(
        &WeightSource::File(path),
        expected,
        &track_model::Device::Cpu,
        Precision::F32,
    )
    .map(|model| model.kind())
}

/// Saves a model's tensors, changed by `change`, and loads the file.
fn saved(
    kind: ModelKind,
    expected: Option<ModelKind>,
    change: impl FnOnce(&mut std::collections::HashMap<String, Tensor>),
) -> Result<ModelKind, Error> {
    let mut tensors = weights(&kind.tensors(), Variant::Plain).unwrap();
    change(&mut tensors);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.safetensors");
    candle_core::safetensors::save(&tensors, &file).unwrap();
    open(file, expected)
}

#[test]
fn the_model_follows_from_the_shapes() {
    for kind in ModelKind::ALL {
        assert_eq!(saved(kind, None, |_| {}).unwrap(), kind);
    }
    let error = saved(
        ModelKind::LocoTrackBase,
        Some(ModelKind::LocoTrackSmall),
        |_| {},
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("they are locotrack-base, not locotrack-small"),
        "{error}"
    );
}

#[test]
fn f16_storage_and_a_wrappers_prefix_are_dealt_with() {
    let kind = saved(ModelKind::LocoTrackSmall, None, |tensors| {
        *tensors = std::mem::take(tensors)
            .into_iter()
            .map(|(name, tensor)| {
                (
                    format!("model.{name}"),
                    tensor.to_dtype(DType::F16).unwrap(),
                )
            })
            .collect();
    });
    assert_eq!(kind.unwrap(), ModelKind::LocoTrackSmall);
}

#[test]
fn tensors_that_do_not_fit_are_listed_by_name() {
    let error = saved(ModelKind::LocoTrackSmall, None, |tensors| {
        tensors.remove("occ_linear.bias");
        tensors.insert(
            "cost_conv.bias".into(),
            Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap(),
        );
        tensors.insert(
            "something_else".into(),
            Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap(),
        );
    });
    let Err(Error::WeightsMismatch { problems, kind, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(kind, ModelKind::LocoTrackSmall);
    assert_eq!(
        problems,
        [
            "cost_conv.bias is [2] instead of [1]",
            "occ_linear.bias [2] is missing",
            "something_else is not part of the model"
        ]
    );
}

#[test]
fn a_lightning_checkpoint_is_read_through_its_state_dict_and_prefix() {
    // The fixture holds three of the 135 tensors, one of them misshapen: every other one must be missing, and
    // none left over, so all names were found under `state_dict` and without their `model.` prefix.
    let error = open(reference::path("fixtures/lightning.ckpt"), None);
    let Err(Error::WeightsMismatch { problems, kind, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(kind, ModelKind::LocoTrackSmall);
    assert_eq!(
        problems
            .iter()
            .filter(|p| p.ends_with("is missing"))
            .count(),
        132
    );
    let others: Vec<_> = problems
        .iter()
        .filter(|p| !p.ends_with("is missing"))
        .collect();
    assert_eq!(
        others,
        ["torch_pips_mixer.input_proj.weight is [256, 4] instead of [256, 854]"]
    );
}

#[test]
fn what_is_no_checkpoint_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.ckpt");
    std::fs::write(&text, "not a checkpoint").unwrap();
    let cut = folder.path().join("cut.safetensors");
    let whole = std::fs::read(reference::path(
        "reference/locotrack_small_6f_384x512_n8.safetensors",
    ))
    .unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let other = reference::path("reference/locotrack_small_6f_384x512_n8.safetensors");
    let empty = folder.path().join("empty.ckpt");
    std::fs::write(&empty, "").unwrap();
    let cases = [
        (text, "neither a .safetensors file nor a PyTorch checkpoint"),
        (cut, "cannot read the weights"),
        (other, "of no model known here"),
        (
            empty,
            "neither a .safetensors file nor a PyTorch checkpoint",
        ),
        (
            folder.path().join("missing.ckpt"),
            "cannot read the weights",
        ),
        (folder.path().to_owned(), "cannot read the weights"),
        (reference::path("fixtures/no_tensors.pth"), "weights"),
    ];
    for (path, said) in cases {
        let message = open(path.clone(), None).unwrap_err().to_string();
        assert!(message.contains(said), "{}: {message}", path.display());
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
