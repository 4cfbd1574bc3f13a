//! The published implementation's numbers, and comparisons against them.

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};

/// A file under `tests/`.
pub fn path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The tensors of `tests/reference/NAME.safetensors`.
pub fn load(name: &str) -> HashMap<String, Tensor> {
    let file = path(&format!("reference/{name}.safetensors"));
    candle_core::safetensors::load(&file, &Device::Cpu)
        .unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Largest absolute difference; infinite where either is not a number or the shapes differ.
pub fn largest_difference(got: &Tensor, want: &Tensor) -> f64 {
    if got.dims() != want.dims() {
        return f64::INFINITY;
    }
    let values = |t: &Tensor| -> Vec<f64> {
        t.to_dtype(DType::F64)
            .and_then(|t| t.flatten_all())
            .and_then(|t| t.to_vec1())
            .expect("a tensor of numbers")
    };
    let differences = values(got)
        .into_iter()
        .zip(values(want))
        .map(|(g, w)| (g - w).abs());
    differences.fold(0.0, |top, d| {
        if d.is_nan() {
            f64::INFINITY
        } else {
            top.max(d)
        }
    })
}
