//! Weights and clips by formula, in 64-bit integers that wrap.

use std::collections::HashMap;

use candle_core::{Device, Result, Tensor};

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// 64-bit FNV-1a of a name.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The i-th value in [−1, 1) of a name.
fn unit(name: u64, i: u64) -> f32 {
    let h = mix((i + 1).wrapping_mul(STEP).wrapping_add(name));
    (h >> 40) as f32 * 2f32.powi(-24) * 2.0 - 1.0
}

/// How a test's weights depart from the plain formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The formula as it is.
    Plain,
    /// The cost volume's convolution passes its inputs on, so that tracks lie all over the picture.
    Centred,
    /// Centred, and a bias on the logits so that both classes occur.
    Inference,
}

/// A model's tensors `(name, shape)` filled by formula.
pub fn weights(
    tensors: &[(String, Vec<usize>)],
    variant: Variant,
) -> Result<HashMap<String, Tensor>> {
    tensors
        .iter()
        .map(|(name, shape)| {
            let values = tensor(name, shape, variant);
            Ok((
                name.clone(),
                Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)?,
            ))
        })
        .collect()
}

fn tensor(name: &str, shape: &[usize], variant: Variant) -> Vec<f32> {
    let hash = fnv1a(name);
    let count: usize = shape.iter().product();
    let mut values: Vec<f32> = if shape.len() >= 2 {
        let fan_in: usize = shape[1..].iter().product();
        let scale = (3.0 / fan_in as f64).sqrt() as f32;
        (0..count as u64).map(|i| unit(hash, i) * scale).collect()
    } else {
        let one = if name.ends_with("weight") { 1.0 } else { 0.0 };
        (0..count as u64)
            .map(|i| one + 0.1 * unit(hash, i))
            .collect()
    };
    if variant != Variant::Plain && name == "cost_conv.weight" {
        values.iter_mut().for_each(|v| *v *= 0.1);
        values[4] += 1.0;
        values[9 + 4] += 1.0;
    }
    if variant == Variant::Inference && name == "torch_pips_mixer.output_proj.bias" {
        values[2] += 0.05;
        values[3] += 0.05;
    }
    values
}

/// The reference clip, u8 `[frames, height, width, 3]`: a square of its own texture over a moving ground.
pub fn clip(frames: usize, height: usize, width: usize) -> Result<Tensor> {
    let mosaic = |yy: i64, xx: i64, c: u64, seed: u64| {
        let cell = (yy.div_euclid(6) as u64)
            .wrapping_mul(73_856_093)
            .wrapping_add((xx.div_euclid(6) as u64).wrapping_mul(19_349_663))
            .wrapping_add(c * 83_492_791 + seed);
        (mix(cell.wrapping_mul(STEP)) >> 56) as u8
    };
    let (h, w) = (height as i64, width as i64);
    let mut out = Vec::with_capacity(frames * height * width * 3);
    for t in 0..frames as i64 {
        let (by, bx) = (h / 4 + 2 * t, w.div_euclid(2) - 3 * t);
        for y in 0..h {
            for x in 0..w {
                let front = (by..by + h / 3).contains(&y) && (bx..bx + w / 3).contains(&x);
                for c in 0..3 {
                    out.push(if front {
                        mosaic(y - by + 5000, x - bx + 5000, c, 77)
                    } else {
                        mosaic(y + 1000 - t, x + 1000 - 2 * t, c, 11)
                    });
                }
            }
        }
    }
    Tensor::from_vec(out, (frames, height, width, 3), &Device::Cpu)
}
