//! Weights by a formula, to time a model for which there are none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use tempfile::TempDir;
use track_model::ModelKind;

use crate::error::os_reason;
use crate::{Error, Result};

/// A folder that is gone with the returned value.
pub(super) fn folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("track.")
        .tempdir()
        .map_err(|e| {
            Error::output(
                &std::env::temp_dir(),
                format!(
                    "made-up weights are kept there: {}; free some space, or set TMPDIR",
                    os_reason(&e)
                ),
            )
        })
}

/// Writes weights of this kind into `folder`: the path of a safetensors file.
///
/// Value i of a tensor is u(i)·√(3 / fan-in) for weights of two dimensions or more, 1 + u(i)/10 for the scales
/// of norms and u(i)/10 for biases, where u(i) in −1..1 is SplitMix64 of i and the FNV-1a hash of the name. So
/// activations keep their size from layer to layer. The convolution of the cost volume passes its inputs on besides
/// (a tenth of the formula, and 1 at both kernels' centres), so that tracks lie all over the picture, as real ones do.
pub(super) fn write(kind: ModelKind, folder: &Path) -> Result<PathBuf> {
    let tensors = kind
        .tensors()
        .into_iter()
        .map(|(name, shape)| {
            let tensor = Tensor::from_vec(values(&name, &shape), shape, &Device::Cpu)?;
            Ok((name, tensor))
        })
        .collect::<candle_core::Result<HashMap<_, _>>>()
        .map_err(track_model::Error::from)?;
    let path = folder.join("made_up.safetensors");
    candle_core::safetensors::save(&tensors, &path).map_err(|e| {
        Error::output(
            &path,
            format!("made-up weights are kept there: {e}; free some space, or set TMPDIR"),
        )
    })?;
    Ok(path)
}

fn values(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    let unit = |i: usize| {
        let mut x = (i as u64 + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(hash);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    if shape.len() < 2 {
        let middle = if name.ends_with("weight") { 1.0 } else { 0.0 };
        return (0..count).map(|i| middle + 0.1 * unit(i)).collect();
    }
    let fan_in: usize = shape[1..].iter().product();
    let scale = (3.0 / fan_in as f64).sqrt() as f32;
    let mut values: Vec<f32> = (0..count).map(|i| unit(i) * scale).collect();
    if name == "cost_conv.weight" {
        values.iter_mut().for_each(|v| *v *= 0.1);
        for centre in values.iter_mut().skip(4).step_by(9) {
            *centre += 1.0;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_size_that_the_formula_says() {
        let values = values("a.weight", &[64, 48]);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.01, "{mean}");
        // Uniform in −s..s has s²/3: 1 / fan-in.
        assert!((square * 48.0 - 1.0).abs() < 0.05, "{square}");
        let norm = super::values("bn.weight", &[100]);
        assert!(norm.iter().all(|v| (0.9..1.1).contains(v)));
    }

    #[test]
    fn the_model_takes_them() {
        let folder = folder().unwrap();
        for kind in ModelKind::ALL {
            let path = write(kind, folder.path()).unwrap();
            let tracker = crate::Tracker::builder()
                .weights(crate::Weights::File(path))
                .device(crate::DeviceChoice::Cpu)
                .build()
                .unwrap();
            assert_eq!(tracker.model(), kind);
        }
    }
}
