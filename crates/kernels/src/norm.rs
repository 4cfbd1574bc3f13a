//! Normalisations. Statistics are f32 or better whatever the precision.

use candle_core::{D, DType, Result, Tensor};
use rayon::prelude::*;

use crate::cpu::{self, simd};

/// Added to a variance before its root.
const EPSILON: f32 = 1e-5;
/// Pixels whose statistics are taken together: few enough for f32 sums, and a first-level cache.
const STAT_PIXELS: usize = 256;

/// `relu(instance_norm(x) · weight + bias)`, statistics over the picture, biased variance.
///
/// `x` and result: `[n, height, width, c]`; `weight`, `bias`: `[c]`.
pub fn instance_norm_relu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    if !cpu::suits(&[x, weight, bias]) {
        return instance_norm_relu_plain(x, weight, bias);
    }
    let (_, height, width, c) = x.dims4()?;
    let (values, weight, bias) = (cpu::floats(x)?, cpu::floats(weight)?, cpu::floats(bias)?);
    let mut out = vec![0.0; values.len()];
    out.par_chunks_mut(height * width * c)
        .zip(values.par_chunks(height * width * c))
        .for_each(|(out, x)| {
            let (mean, scale) = statistics(x, c, &weight);
            out.par_chunks_mut(STAT_PIXELS * c)
                .zip(x.par_chunks(STAT_PIXELS * c))
                .for_each(|(out, x)| {
                    simd(
                        #[inline(always)]
                        || {
                            for (out, x) in out.chunks_exact_mut(c).zip(x.chunks_exact(c)) {
                                // The mean is taken off first: folded into the shift, it would cancel badly where
                                // a picture is nearly constant.
                                for ((((o, &x), &m), &a), &b) in out
                                    .iter_mut()
                                    .zip(x)
                                    .zip(&mean)
                                    .zip(&scale)
                                    .zip(bias.iter())
                                {
                                    *o = relu((x - m).mul_add(a, b));
                                }
                            }
                        },
                    );
                });
        });
    cpu::tensor(out, x.dims())
}

/// Mean and scale per channel that normalise one picture.
fn statistics(x: &[f32], c: usize, weight: &[f32]) -> (Vec<f32>, Vec<f32>) {
    // Mean and squared deviations of each block, then all blocks combined in order: exact enough without a
    // second pass over memory, and the same whatever the number of threads.
    let blocks: Vec<(usize, Vec<f32>, Vec<f32>)> = x
        .par_chunks(STAT_PIXELS * c)
        .map(|block| {
            let pixels = block.len() / c;
            let (mut mean, mut m2) = (vec![0.0f32; c], vec![0.0f32; c]);
            simd(
                #[inline(always)]
                || {
                    for pixel in block.chunks_exact(c) {
                        mean.iter_mut().zip(pixel).for_each(|(m, &v)| *m += v);
                    }
                    mean.iter_mut().for_each(|m| *m /= pixels as f32);
                    for pixel in block.chunks_exact(c) {
                        for ((s, &m), &v) in m2.iter_mut().zip(&mean).zip(pixel) {
                            let d = v - m;
                            *s = d.mul_add(d, *s);
                        }
                    }
                },
            );
            (pixels, mean, m2)
        })
        .collect();
    let total: usize = blocks.iter().map(|b| b.0).sum();
    (0..c)
        .map(|i| {
            let mean = blocks
                .iter()
                .map(|(n, mean, _)| *n as f64 * f64::from(mean[i]))
                .sum::<f64>()
                / total as f64;
            let m2: f64 = blocks
                .iter()
                .map(|(n, block_mean, m2)| {
                    f64::from(m2[i]) + *n as f64 * (f64::from(block_mean[i]) - mean).powi(2)
                })
                .sum();
            let scale = f64::from(weight[i]) / (m2 / total as f64 + f64::from(EPSILON)).sqrt();
            (mean as f32, scale as f32)
        })
        .unzip()
}

/// The same by Candle's operations.
pub(crate) fn instance_norm_relu_plain(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
) -> Result<Tensor> {
    let (n, height, width, c) = x.dims4()?;
    let wide = x.to_dtype(DType::F32)?.reshape((n, height * width, c))?;
    let centred = wide.broadcast_sub(&wide.mean_keepdim(1)?)?;
    let deviation = (centred.sqr()?.mean_keepdim(1)? + f64::from(EPSILON))?.sqrt()?;
    let y = centred
        .broadcast_div(&deviation)?
        .broadcast_mul(&weight.to_dtype(DType::F32)?)?;
    let y = y.broadcast_add(&bias.to_dtype(DType::F32)?)?.relu()?;
    y.reshape((n, height, width, c))?.to_dtype(x.dtype())
}

/// Divides each pixel's channels by their Euclidean norm, `sqrt(max(Σx², 1e-12))`.
///
/// `x` and result: `[n, height, width, c]`.
pub fn l2_normalize(x: &Tensor) -> Result<Tensor> {
    if !cpu::suits(&[x]) {
        return l2_normalize_plain(x);
    }
    let (_, _, width, c) = x.dims4()?;
    let values = cpu::floats(x)?;
    let mut out = vec![0.0; values.len()];
    out.par_chunks_mut(width * c)
        .zip(values.par_chunks(width * c))
        .for_each(|(out, x)| {
            simd(
                #[inline(always)]
                || {
                    for (out, x) in out.chunks_exact_mut(c).zip(x.chunks_exact(c)) {
                        let scale = 1.0 / lanes_sum(x, |v| v * v).max(1e-12).sqrt();
                        out.iter_mut().zip(x).for_each(|(o, &v)| *o = v * scale);
                    }
                },
            );
        });
    cpu::tensor(out, x.dims())
}

/// The same by Candle's operations.
pub(crate) fn l2_normalize_plain(x: &Tensor) -> Result<Tensor> {
    let wide = x.to_dtype(DType::F32)?;
    let norm = wide.sqr()?.sum_keepdim(D::Minus1)?.maximum(1e-12)?.sqrt()?;
    wide.broadcast_div(&norm)?.to_dtype(x.dtype())
}

/// Sum of `f` over a slice in 16 lanes, so that it vectorises and its order is fixed.
#[inline(always)]
pub(crate) fn lanes_sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 16];
    let chunks = x.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().map(|&v| f(v)).sum();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += f(v);
        }
    }
    rest + lanes.iter().sum::<f32>()
}

/// The larger of a value and zero. What is not a number stays so, where `f32::max` would hide it behind a zero.
#[inline(always)]
fn relu(v: f32) -> f32 {
    if v < 0.0 { 0.0 } else { v }
}

/// The largest value of a slice, in 16 lanes; what is not a number is passed over.
#[inline(always)]
pub(crate) fn lanes_max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = x.chunks_exact(16);
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let rest = chunks
        .remainder()
        .iter()
        .fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, v);
        }
    }
    lanes.into_iter().fold(rest, larger)
}

/// Layer normalisation over the last axis, eps 1e-5.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    /// Takes `weight` and `bias` `[c]`.
    pub fn new(weight: Tensor, bias: Tensor) -> Self {
        Self { weight, bias }
    }

    /// `x` and result: `[…, c]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if !cpu::suits(&[x, &self.weight, &self.bias]) {
            return self.plain(x);
        }
        let c = x.dim(D::Minus1)?;
        let (values, weight, bias) = (
            cpu::floats(x)?,
            cpu::floats(&self.weight)?,
            cpu::floats(&self.bias)?,
        );
        let mut out = vec![0.0; values.len()];
        out.par_chunks_mut(64 * c)
            .zip(values.par_chunks(64 * c))
            .for_each(|(out, x)| {
                simd(
                    #[inline(always)]
                    || {
                        for (out, x) in out.chunks_exact_mut(c).zip(x.chunks_exact(c)) {
                            let mean = lanes_sum(x, |v| v) / c as f32;
                            let variance = lanes_sum(x, |v| (v - mean) * (v - mean)) / c as f32;
                            let scale = 1.0 / (variance + EPSILON).sqrt();
                            for (((o, &v), &w), &b) in
                                out.iter_mut().zip(x).zip(weight.iter()).zip(bias.iter())
                            {
                                *o = ((v - mean) * scale).mul_add(w, b);
                            }
                        }
                    },
                );
            });
        cpu::tensor(out, x.dims())
    }

    /// The same by Candle's operations.
    pub fn plain(&self, x: &Tensor) -> Result<Tensor> {
        let wide = x.to_dtype(DType::F32)?;
        let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
        let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + f64::from(EPSILON))?.sqrt()?;
        let y = centred
            .broadcast_div(&deviation)?
            .broadcast_mul(&self.weight.to_dtype(DType::F32)?)?;
        y.broadcast_add(&self.bias.to_dtype(DType::F32)?)?
            .to_dtype(x.dtype())
    }
}

/// `relu(group_norm(x) · weight + bias)` in place: groups of 16 channels over the whole picture.
///
/// `x`: `[n, pixels, c]`.
#[inline(always)]
pub(crate) fn group_norm_relu(
    x: &mut [f32],
    pixels: usize,
    c: usize,
    weight: &[f32],
    bias: &[f32],
) {
    for picture in x.chunks_exact_mut(pixels * c) {
        for group in (0..c).step_by(16) {
            let mut sums = [0.0f32; 16];
            for pixel in picture.chunks_exact(c) {
                sums.iter_mut()
                    .zip(&pixel[group..group + 16])
                    .for_each(|(s, &v)| *s += v);
            }
            let count = (pixels * 16) as f32;
            let mean = sums.iter().sum::<f32>() / count;
            let mut squares = [0.0f32; 16];
            for pixel in picture.chunks_exact(c) {
                squares
                    .iter_mut()
                    .zip(&pixel[group..group + 16])
                    .for_each(|(s, &v)| *s += (v - mean) * (v - mean));
            }
            let scale = 1.0 / (squares.iter().sum::<f32>() / count + EPSILON).sqrt();
            for pixel in picture.chunks_exact_mut(c) {
                for ((v, &w), &b) in pixel[group..group + 16]
                    .iter_mut()
                    .zip(&weight[group..group + 16])
                    .zip(&bias[group..group + 16])
                {
                    *v = relu(((*v - mean) * scale).mul_add(w, b));
                }
            }
        }
    }
}

/// Group normalisation and ReLU by Candle's operations. `x`: `[n, height, width, c]`.
pub(crate) fn group_norm_relu_plain(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (n, height, width, c) = x.dims4()?;
    let wide = x
        .to_dtype(DType::F32)?
        .reshape((n, height * width, c / 16, 16))?;
    let count = (height * width * 16) as f64;
    let mean = (wide.sum_keepdim(3)?.sum_keepdim(1)? / count)?;
    let centred = wide.broadcast_sub(&mean)?;
    let variance = (centred.sqr()?.sum_keepdim(3)?.sum_keepdim(1)? / count)?;
    let y = centred
        .broadcast_div(&(variance + f64::from(EPSILON))?.sqrt()?)?
        .reshape((n, height, width, c))?;
    let y = y
        .broadcast_mul(&weight.to_dtype(DType::F32)?)?
        .broadcast_add(&bias.to_dtype(DType::F32)?)?;
    y.relu()?.to_dtype(x.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use candle_core::Device;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn cpu_equals_plain(n in 1usize..3, h in 1usize..40, w in 1usize..30, c in 1usize..50) {
            let x = (random((n, h, w, c), 1) * 3.0).unwrap();
            let (weight, bias) = (random(c, 2), random(c, 3));
            assert_close(
                &instance_norm_relu(&x, &weight, &bias).unwrap(),
                &instance_norm_relu_plain(&x, &weight, &bias).unwrap(),
                1e-5,
            );
            assert_close(&l2_normalize(&x).unwrap(), &l2_normalize_plain(&x).unwrap(), 1e-6);
            let norm = LayerNorm::new(weight, bias);
            assert_close(&norm.forward(&x).unwrap(), &norm.plain(&x).unwrap(), 1e-5);
        }
    }

    #[test]
    fn a_constant_picture_normalises_to_its_bias_and_stays_finite() {
        let x = (Tensor::ones((1, 30, 30, 16), DType::F32, &candle_core::Device::Cpu).unwrap()
            * 1000.0)
            .unwrap();
        let y = instance_norm_relu(&x, &random(16, 1), &random(16, 2)).unwrap();
        let want = random(16, 2)
            .relu()
            .unwrap()
            .broadcast_as((1, 30, 30, 16))
            .unwrap()
            .contiguous()
            .unwrap();
        assert_close(&y, &want, 1e-6);
        let black = (x * 0.0).unwrap();
        assert_close(&l2_normalize(&black).unwrap(), &black, 0.0);
    }

    #[test]
    fn a_relu_hides_no_bad_number() {
        assert_eq!([-1.0, 0.0, 2.5].map(relu), [0.0, 0.0, 2.5]);
        assert!(relu(f32::NAN).is_nan());
        assert_eq!(relu(f32::INFINITY), f32::INFINITY);
        let mut pictures = vec![1.0; 16 * 4];
        pictures[5] = f32::NAN;
        let x = Tensor::from_vec(pictures, (1, 2, 2, 16), &Device::Cpu).unwrap();
        let ones = Tensor::ones(16, candle_core::DType::F32, &Device::Cpu).unwrap();
        let y = instance_norm_relu(&x, &ones, &ones).unwrap();
        let y = y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(y[5].is_nan() && y[6].is_finite());
    }
}
