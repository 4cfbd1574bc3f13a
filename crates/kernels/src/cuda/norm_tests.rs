//! Norms on the device (or the emulator) against plain Candle.

use candle_core::{Device, Tensor};
use proptest::prelude::*;

use super::device_testing::{assert_near, floats, gpu, rounded, upload};
use super::{Affine, Buffer, Element, Gpu, Tape, instance_norm_scratch};
use crate::norm::{LayerNorm, instance_norm_relu_plain, l2_normalize_plain};
use crate::testing::random;

const ALL: [Element; 3] = [Element::F32, Element::F16, Element::Bf16];

/// Largest difference relative to the largest value, for inputs that were rounded beforehand: what rounding the
/// result costs, and in f32 the sums.
fn tolerance(element: Element) -> f32 {
    match element {
        Element::F32 | Element::Tf32 => 2e-6,
        Element::F16 => 6e-4,
        Element::Bf16 => 5e-3,
    }
}

/// A tensor that has this many values in each type's buffer, none of them written yet.
fn unwritten(gpu: &Gpu, element: Element, values: usize) -> Buffer {
    let buffer = Buffer::new(gpu, values * element.size()).unwrap();
    buffer.fill(0xff).unwrap();
    buffer
}

fn affine(gpu: &Gpu, c: usize) -> (Tensor, Tensor, Affine) {
    let (weight, bias) = (random(c, 2), random(c, 3));
    let on_device = Affine {
        weight: upload(gpu, Element::F32, &weight),
        bias: upload(gpu, Element::F32, &bias),
    };
    (weight, bias, on_device)
}

/// Norms of several shapes on one tape and one scratch, run twice.
fn instance_norms(element: Element, shapes: &[(usize, usize, usize)], offset: f64) {
    let gpu = gpu();
    let scratch = shapes
        .iter()
        .map(|&(n, p, c)| instance_norm_scratch(n, p, c));
    let scratch = Buffer::new(&gpu, scratch.max().unwrap() * 4).unwrap();
    scratch.fill(0).unwrap();
    let mut tape = Tape::new(&gpu);
    tape.layer("norm", ());
    let mut kept = Vec::new();
    for (i, &(frames, pixels, c)) in shapes.iter().enumerate() {
        let x = (random((frames, pixels, 1, c), 10 + i as u64) + offset).unwrap();
        let x = rounded(element, &x);
        let (weight, bias, norm) = affine(&gpu, c);
        let (input, y) = (
            upload(&gpu, element, &x),
            unwritten(&gpu, element, frames * pixels * c),
        );
        let shape = (frames, pixels, c);
        tape.instance_norm_relu(element, input.all(), shape, &norm, scratch.all(), y.all())
            .unwrap();
        // An offset changes nothing, but the plain form's sums. Taking it off is exact.
        let want = instance_norm_relu_plain(&(x - offset).unwrap(), &weight, &bias).unwrap();
        kept.push((input, norm, y, want));
    }
    assert_eq!(tape.launches(), 2 * shapes.len());
    let mut before = Vec::new();
    for run in 0..2 {
        tape.run().unwrap();
        let mut all = Vec::new();
        for ((_, _, y, want), shape) in kept.iter().zip(shapes) {
            let got = y.values(element, want.elem_count()).unwrap();
            let what = format!("{element:?} {shape:?} + {offset}, run {run}");
            // A mean of 100 is rounded to steps of 7.6e-6, which a scale of 2 doubles.
            let mean = if offset == 0.0 { 0.0 } else { 4e-6 };
            assert_near(&got, want, tolerance(element) + mean, &what);
            y.fill(0xff).unwrap();
            all.push(got);
        }
        assert!(before.is_empty() || before == all, "a second run differs");
        let counters = scratch.values(Element::F32, 1024).unwrap();
        assert!(counters.iter().all(|v| v.to_bits() == 0));
        before = all;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn instance_norms_equal_plain(
        a in (1usize..5, 1usize..2000, 0usize..3),
        b in (1usize..5, 1usize..100, 0usize..3),
    ) {
        let shapes = [a, b].map(|(frames, pixels, c)| (frames, pixels, [64, 128, 256][c]));
        for element in ALL {
            instance_norms(element, &shapes, 0.0);
        }
    }
}

#[test]
fn instance_norms_of_one_pixel_of_many_parts_and_far_from_zero() {
    // One pixel; pixels that fill no part; more parts than a thread of the last block takes at once, the last of them
    // short; few channels.
    let shapes = [
        (3, 1, 64),
        (2, 257, 128),
        (1, 63 * 277 + 5, 64),
        (2, 1029, 256),
        (1, 40, 8),
    ];
    for element in ALL {
        instance_norms(element, &shapes, 0.0);
        instance_norms(element, &shapes, 100.0);
    }
}

/// A constant picture is its bias, whatever its value; one pixel that stands out of it is seen.
#[test]
fn instance_norms_of_constant_pictures() {
    let (pixels, c) = (3000, 64);
    for element in ALL {
        for odd_one_out in [0.0, 1.0] {
            let gpu = gpu();
            let mut values = vec![117.0f32; pixels * c];
            values[..c].iter_mut().for_each(|v| *v += odd_one_out);
            let x = Tensor::from_vec(values, (1, pixels, 1, c), &Device::Cpu).unwrap();
            let (weight, bias, norm) = affine(&gpu, c);
            let scratch = Buffer::new(&gpu, instance_norm_scratch(1, pixels, c) * 4).unwrap();
            scratch.fill(0).unwrap();
            let y = upload(&gpu, element, &x);
            let mut tape = Tape::new(&gpu);
            tape.layer("norm", ());
            tape.instance_norm_relu(
                element,
                y.all(),
                (1, pixels, c),
                &norm,
                scratch.all(),
                y.all(),
            )
            .unwrap();
            tape.run_once().unwrap();
            let got = y.values(element, pixels * c).unwrap();
            // In f64: the plain form's f32 mean is off by more than such pictures vary.
            let mean = f64::from(odd_one_out) / pixels as f64;
            let variance = mean * (f64::from(odd_one_out) - mean);
            let (weight, bias) = (floats(&weight), floats(&bias));
            for (i, got) in got.iter().enumerate() {
                let apart = if i < c {
                    f64::from(odd_one_out) - mean
                } else {
                    -mean
                };
                let normed = apart / (variance + 1e-5).sqrt() * f64::from(weight[i % c]);
                let want = (normed + f64::from(bias[i % c])).max(0.0);
                // The mean lies between two steps of 7.6e-6, and the scale is 54.
                let mean = if odd_one_out == 0.0 { 0.0 } else { 4e-4 };
                let allowed = mean + f64::from(tolerance(element)) * want.max(1.0);
                assert!(
                    (f64::from(*got) - want).abs() <= allowed,
                    "{element:?} + {odd_one_out}, value {i}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn what_instance_norms_cannot_do_is_refused() {
    let gpu = gpu();
    let (_, _, norm) = affine(&gpu, 256);
    let memory = Buffer::new(&gpu, 1 << 20).unwrap();
    let refused = |shape: (usize, usize, usize)| {
        Tape::<()>::new(&gpu)
            .instance_norm_relu(
                Element::F16,
                memory.all(),
                shape,
                &norm,
                memory.all(),
                memory.all(),
            )
            .unwrap_err()
            .to_string()
    };
    assert!(refused((1025, 1, 8)).contains("at most 1024 frames"));
    assert!(refused((1, 1, 96)).contains("not 96"));
    assert!(refused((1, 1, 512)).contains("not 512"));
    assert!(refused((1, 1 << 17, 8)).contains("do not fit"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn rows_divided_by_their_length_equal_plain(rows in 1usize..200, c in 0usize..3) {
        let c = [64, 128, 256][c];
        for element in ALL {
            let gpu = gpu();
            // The first row is zero, which has no direction.
            let x = Tensor::cat(&[random((1, c), 4).zeros_like().unwrap(), random((rows, c), 4)], 0).unwrap();
            let x = rounded(element, &x);
            let (input, y) = (upload(&gpu, element, &x), unwritten(&gpu, element, (rows + 1) * c));
            let mut tape = Tape::new(&gpu);
            tape.layer("norm", ());
            tape.l2_normalize(element, input.all(), rows + 1, c, y.all()).unwrap();
            tape.run().unwrap();
            let got = y.values(element, (rows + 1) * c).unwrap();
            let want = l2_normalize_plain(&x).unwrap();
            assert_near(&got, &want, tolerance(element), &format!("{element:?} {rows} × {c}"));
        }
    }

    #[test]
    fn layer_norms_equal_plain(rows in 1usize..100, c in 0usize..6) {
        let c = [8, 40, 256, 384, 768, 1024][c];
        for element in ALL {
            let gpu = gpu();
            let x = rounded(element, &(random((rows, c), 5) * 3.0).unwrap());
            let (weight, bias, norm) = affine(&gpu, c);
            let (input, y) = (upload(&gpu, element, &x), unwritten(&gpu, element, rows * c));
            let mut tape = Tape::new(&gpu);
            tape.layer("norm", ());
            tape.layer_norm(element, input.all(), (rows, c), &norm, y.all()).unwrap();
            tape.run().unwrap();
            let got = y.values(element, rows * c).unwrap();
            let want = LayerNorm::new(weight, bias).plain(&x).unwrap();
            assert_near(&got, &want, tolerance(element), &format!("{element:?} {rows} × {c}"));
        }
    }
}
