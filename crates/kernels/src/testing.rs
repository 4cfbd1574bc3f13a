//! Random tensors and comparisons for the tests of this crate.

use candle_core::{DType, Device, Shape, Tensor};

/// Values in [−1, 1) that depend on the seed and the index alone.
pub(crate) fn random(shape: impl Into<Shape>, seed: u64) -> Tensor {
    let shape = shape.into();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678;
    let values: Vec<f32> = (0..shape.elem_count())
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Fails where any two values differ by more than `tolerance`, or are not numbers.
#[track_caller]
pub(crate) fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(got.dims(), want.dims());
    let values = |t: &Tensor| {
        t.to_dtype(DType::F64)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap()
    };
    for (i, (g, w)) in values(got).into_iter().zip(values(want)).enumerate() {
        assert!(
            (g - w).abs() <= tolerance,
            "value {i}: {g} is not {w} (off by {:e}, allowed {tolerance:e})",
            (g - w).abs()
        );
    }
}
