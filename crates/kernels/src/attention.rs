//! Attention over the frames of a track, each half of the heads looking one way in time.

use candle_core::{D, DType, Device, Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, Mat, math, matmul, simd, with_scratch};
use crate::norm::{lanes_max, lanes_sum};

/// Frames whose scores are held at once.
const ROWS: usize = 64;

/// What is fixed about an attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Heads: the first half sees a frame and those before it, the second a frame and those after it.
    pub heads: usize,
    /// A half's head k of n loses `base^(−(k+1)/n)` per frame of distance.
    pub slope_base: f32,
}

impl Attention {
    /// What head `head` loses per frame of distance, and whether it looks back.
    pub(crate) fn head(&self, head: usize) -> (f32, bool) {
        let half = self.heads / 2;
        let k = head % half;
        (
            self.slope_base.powf(-((k + 1) as f32) / half as f32),
            head < half,
        )
    }
}

/// Softmax attention with a linear bias on the distance in time (LocoTrack, section 3.3).
///
/// `qkv`: `[n, frames, 3·c]`, the projections of a token side by side; head h owns channels
/// `h·c/heads..(h+1)·c/heads` of each. Result: `[n, frames, c]`.
pub fn attention(qkv: &Tensor, layer: Attention) -> Result<Tensor> {
    let (n, frames, width) = qkv.dims3()?;
    let c = width / 3;
    if layer.heads < 2
        || !layer.heads.is_multiple_of(2)
        || !c.is_multiple_of(layer.heads)
        || !width.is_multiple_of(3)
    {
        bail!(
            "attention of {} heads does not fit {width} channels",
            layer.heads
        )
    }
    if !cpu::suits(&[qkv]) {
        return plain(qkv, layer);
    }
    let values = cpu::floats(qkv)?;
    let mut out = vec![0.0; n * frames * c];
    out.par_chunks_mut(frames * c)
        .zip(values.par_chunks(frames * width))
        .for_each(|(out, qkv)| {
            with_scratch(ROWS * frames, |scores| {
                for head in 0..layer.heads {
                    for first in (0..frames).step_by(ROWS) {
                        one_head(qkv, (frames, c), layer, head, first, scores, out);
                    }
                }
            });
        });
    cpu::tensor(out, (n, frames, c))
}

/// Frames `first..first + ROWS` of one head of one track.
fn one_head(
    qkv: &[f32],
    (frames, c): (usize, usize),
    layer: Attention,
    head: usize,
    first: usize,
    scores: &mut [f32],
    out: &mut [f32],
) {
    let size = c / layer.heads;
    let (slope, back) = layer.head(head);
    let rows = ROWS.min(frames - first);
    // Only frames that some row of the block sees.
    let keys = if back { 0..first + rows } else { first..frames };
    let count = keys.len();
    let part = |frame: usize, which: usize| &qkv[frame * 3 * c + which * c + head * size..];
    let scores = &mut scores[..rows * count];
    matmul(
        rows,
        count,
        size,
        scores,
        count,
        false,
        Mat {
            data: part(first, 0),
            rs: 3 * c,
            cs: 1,
        },
        Mat {
            data: part(keys.start, 1),
            rs: 1,
            cs: 3 * c,
        },
    );
    let scale = 1.0 / (size as f32).sqrt();
    simd(
        #[inline(always)]
        || {
            for (i, row) in scores.chunks_exact_mut(count).enumerate() {
                let frame = first + i;
                let seen = if back {
                    0..frame + 1 - keys.start
                } else {
                    frame - keys.start..count
                };
                row[..seen.start].fill(0.0);
                row[seen.end..].fill(0.0);
                let start = keys.start + seen.start;
                let row = &mut row[seen];
                for (j, s) in row.iter_mut().enumerate() {
                    let gap = (start + j) as f32 - frame as f32;
                    *s = s.mul_add(scale, -slope * gap.abs());
                }
                let top = lanes_max(row);
                row.iter_mut().for_each(|s| *s = math::exp(*s - top));
                let sum = lanes_sum(row, |v| v);
                let inverse = 1.0 / sum;
                row.iter_mut().for_each(|s| *s *= inverse);
            }
        },
    );
    matmul(
        rows,
        size,
        count,
        &mut out[first * c + head * size..],
        c,
        false,
        Mat::rows(scores, count),
        Mat {
            data: part(keys.start, 2),
            rs: 3 * c,
            cs: 1,
        },
    );
}

/// The same by Candle's operations.
pub(crate) fn plain(qkv: &Tensor, layer: Attention) -> Result<Tensor> {
    let (n, frames, width) = qkv.dims3()?;
    let (c, size) = (width / 3, width / 3 / layer.heads);
    let parts = qkv
        .reshape((n, frames, 3, layer.heads, size))?
        .permute((2, 0, 3, 1, 4))?
        .contiguous()?;
    let (q, k, v) = (parts.get(0)?, parts.get(1)?, parts.get(2)?);
    let scores = (q.matmul(&k.t()?.contiguous()?)?.to_dtype(DType::F32)? / (size as f64).sqrt())?;
    let scores = scores.broadcast_add(&bias(layer, frames, qkv.device())?)?;
    let weights = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(qkv.dtype())?;
    weights.matmul(&v)?.transpose(1, 2)?.reshape((n, frames, c))
}

/// `[heads, frames, frames]`: the bias of key j for query i, −∞ where a head does not look.
fn bias(layer: Attention, frames: usize, device: &Device) -> Result<Tensor> {
    let mut values = Vec::with_capacity(layer.heads * frames * frames);
    for head in 0..layer.heads {
        let (slope, back) = layer.head(head);
        for i in 0..frames {
            for j in 0..frames {
                let seen = if back { j <= i } else { j >= i };
                values.push(if seen {
                    -slope * (j as f32 - i as f32).abs()
                } else {
                    f32::NEG_INFINITY
                });
            }
        }
    }
    Tensor::from_vec(values, (layer.heads, frames, frames), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn cpu_equals_plain(n in 1usize..4, frames in 1usize..150, half in 1usize..4, size in 1usize..20) {
            let layer = Attention { heads: 2 * half, slope_base: 24.0 };
            let qkv = (random((n, frames, 3 * 2 * half * size), 1) * 3.0).unwrap();
            assert_close(&attention(&qkv, layer).unwrap(), &plain(&qkv, layer).unwrap(), 1e-5);
        }
    }

    #[test]
    fn one_frame_attends_to_itself() {
        let qkv = random((2, 1, 12), 1);
        let got = attention(
            &qkv,
            Attention {
                heads: 2,
                slope_base: 24.0,
            },
        )
        .unwrap();
        assert_close(
            &got,
            &qkv.narrow(2, 8, 4).unwrap().contiguous().unwrap(),
            1e-6,
        );
    }
}
