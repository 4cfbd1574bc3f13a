//! What a token knows of its track's motion.

use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu;

/// Octaves of the sine encoding.
const OCTAVES: usize = 10;
/// Numbers per token: two logits, four differences, and the sines and cosines of these at ten octaves.
pub const MOTION_FEATURES: usize = 2 + 4 * (1 + 2 * OCTAVES);

/// Occlusion, expected distance and the encoded differences to the next and the previous frame.
///
/// `positions`: `[n, frames, 2]` (x, y); `occlusion`, `expected_dist`: `[n, frames]` logits; `scale`: what
/// differences along x and y are multiplied by. Result: `[n, frames, 86]` = occlusion, expected distance,
/// m = (forward x, forward y, backward x, backward y), `sin(m_c·2^k)` at 4k + c for k = 0..9, and
/// `sin(m_c·2^k + π/2)` in the same order. Differences are zero beyond the clip's ends.
pub fn motion_features(
    positions: &Tensor,
    occlusion: &Tensor,
    expected_dist: &Tensor,
    scale: [f32; 2],
) -> Result<Tensor> {
    let (n, frames, two) = positions.dims3()?;
    if two != 2 || occlusion.dims() != [n, frames] || expected_dist.dims() != [n, frames] {
        bail!(
            "positions {:?} do not fit logits {:?}",
            positions.shape(),
            occlusion.shape()
        )
    }
    if !cpu::suits(&[positions, occlusion, expected_dist]) {
        return plain(positions, occlusion, expected_dist, scale);
    }
    let (p, o, e) = (
        cpu::floats(positions)?,
        cpu::floats(occlusion)?,
        cpu::floats(expected_dist)?,
    );
    let mut out = vec![0.0; n * frames * MOTION_FEATURES];
    out.par_chunks_mut(frames * MOTION_FEATURES)
        .enumerate()
        .for_each(|(track, out)| {
            let p = &p[track * frames * 2..][..frames * 2];
            for (t, token) in out.chunks_exact_mut(MOTION_FEATURES).enumerate() {
                token[0] = o[track * frames + t];
                token[1] = e[track * frames + t];
                let mut m = [0.0; 4];
                for axis in 0..2 {
                    let here = p[2 * t + axis];
                    if t + 1 < frames {
                        m[axis] = (here - p[2 * (t + 1) + axis]) * scale[axis];
                    }
                    if t > 0 {
                        m[2 + axis] = (here - p[2 * (t - 1) + axis]) * scale[axis];
                    }
                }
                token[2..6].copy_from_slice(&m);
                let (sines, cosines) = token[6..].split_at_mut(4 * OCTAVES);
                for (i, (s, c)) in sines.iter_mut().zip(cosines).enumerate() {
                    let angle = m[i % 4] * (1u32 << (i / 4)) as f32;
                    *s = angle.sin();
                    *c = (angle + std::f32::consts::FRAC_PI_2).sin();
                }
            }
        });
    cpu::tensor(out, (n, frames, MOTION_FEATURES))
}

/// The same by Candle's operations.
pub(crate) fn plain(
    positions: &Tensor,
    occlusion: &Tensor,
    expected_dist: &Tensor,
    scale: [f32; 2],
) -> Result<Tensor> {
    let (n, frames, _) = positions.dims3()?;
    let device = positions.device();
    let steps = positions
        .narrow(1, 0, frames - 1)?
        .sub(&positions.narrow(1, 1, frames - 1)?)?;
    let steps = steps.broadcast_mul(&Tensor::new(&scale, device)?)?;
    let forward = steps.pad_with_zeros(1, 0, 1)?;
    let backward = steps.neg()?.pad_with_zeros(1, 1, 0)?;
    let m = Tensor::cat(&[forward, backward], 2)?;
    let octaves: Vec<f32> = (0..OCTAVES).map(|k| (1u32 << k) as f32).collect();
    let octaves = Tensor::from_vec(octaves, (OCTAVES, 1), device)?;
    let angles = m
        .unsqueeze(2)?
        .broadcast_mul(&octaves)?
        .reshape((n, frames, 4 * OCTAVES))?;
    let cosines = (&angles + std::f64::consts::FRAC_PI_2)?.sin()?;
    Tensor::cat(
        &[
            &occlusion.unsqueeze(2)?,
            &expected_dist.unsqueeze(2)?,
            &m,
            &angles.sin()?,
            &cosines,
        ],
        2,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn cpu_equals_plain(n in 1usize..4, frames in 1usize..9) {
            let p = (random((n, frames, 2), 1) * 0.05).unwrap();
            let (o, e) = (random((n, frames), 2), random((n, frames), 3));
            let scale = [1.5, 0.75];
            assert_close(
                &motion_features(&p, &o, &e, scale).unwrap(),
                &plain(&p, &o, &e, scale).unwrap(),
                1e-5,
            );
        }
    }
}
