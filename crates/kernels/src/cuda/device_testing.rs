//! What tests of device code share: where they run, tensors as a device holds them, comparisons.

use candle_core::{Device, Tensor};

use super::{Buffer, Element, Gpu};

/// The CUDA device where `TRACK_TEST_CUDA` asks for it, else the emulator.
pub(super) fn gpu() -> Gpu {
    if std::env::var_os("TRACK_TEST_CUDA").is_some() {
        return Gpu::cuda(0).expect("TRACK_TEST_CUDA asks for a device");
    }
    Gpu::emulated()
}

pub(super) fn upload(gpu: &Gpu, element: Element, t: &Tensor) -> Buffer {
    Buffer::of_tensor(gpu, element, t).unwrap()
}

/// A tensor whose values the type in memory holds exactly.
pub(super) fn rounded(element: Element, t: &Tensor) -> Tensor {
    let values = element.decode(&element.encode(&floats(t)));
    Tensor::from_vec(values, t.shape(), &Device::Cpu).unwrap()
}

pub(super) fn floats(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1::<f32>().unwrap()
}

/// Fails where a value differs by more than `tolerance` of the largest, or is not a number.
#[track_caller]
pub(super) fn assert_near(got: &[f32], want: &Tensor, tolerance: f32, what: &str) {
    let want = floats(want);
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        // A NaN is never near.
        assert!(
            (g - w).abs() <= tolerance * scale,
            "{what}: value {i} is {g}, not {w} (scale {scale})"
        );
    }
}
