//! The first estimate of every track: a global cost volume and its soft arg-max.

use candle_core::{D, DType, Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, Mat, math, matmul, simd, with_scratch};
use crate::norm::{lanes_max, lanes_sum};
use crate::resize::{self, Tap};

/// Queries whose costs on a frame are held together.
const QUERIES: usize = 64;

/// The small layers that read the cost volume.
#[derive(Debug)]
pub struct CostHead {
    /// `[1, 2, 3, 3]`: mixes the two resolutions' costs.
    conv_weight: Tensor,
    /// `[1]`.
    conv_bias: Tensor,
    /// `[2, 6]`: reads occlusion and expected distance.
    occ_weight: Tensor,
    /// `[2]`.
    occ_bias: Tensor,
    /// Sharpness of the softmax over cells.
    temperature: f32,
    /// Cells further than this from the best one do not count.
    radius: f32,
}

/// A first estimate; see [`initial_tracks`].
#[derive(Debug)]
pub struct InitialTracks {
    /// `[n, frames, 2]`: x, y in cells of the finer grid (raster positions).
    pub positions: Tensor,
    /// `[n, frames]`: logit.
    pub occlusion: Tensor,
    /// `[n, frames]`: logit.
    pub expected_dist: Tensor,
}

/// The head's numbers on the host.
struct Numbers {
    conv: Vec<f32>,
    conv_bias: f32,
    occ: Vec<f32>,
    occ_bias: Vec<f32>,
}

impl CostHead {
    /// Takes the convolution `[1, 2, 3, 3]`, `[1]`, the occlusion layer `[2, 6]`, `[2]`, the softmax's
    /// temperature and the radius of the soft arg-max in cells.
    pub fn new(
        conv: (Tensor, Tensor),
        occ: (Tensor, Tensor),
        temperature: f32,
        radius: f32,
    ) -> Result<Self> {
        if conv.0.dims() != [1, 2, 3, 3] || occ.0.dims() != [2, 6] {
            bail!(
                "a cost head of {:?} and {:?} is not supported",
                conv.0.shape(),
                occ.0.shape()
            )
        }
        Ok(Self {
            conv_weight: conv.0,
            conv_bias: conv.1,
            occ_weight: occ.0,
            occ_bias: occ.1,
            temperature,
            radius,
        })
    }

    fn numbers(&self) -> Result<Numbers> {
        let host = |t: &Tensor| t.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        let conv_bias = host(&self.conv_bias)?;
        Ok(Numbers {
            conv: host(&self.conv_weight)?,
            conv_bias: conv_bias[0],
            occ: host(&self.occ_weight)?,
            occ_bias: host(&self.occ_bias)?,
        })
    }
}

/// Finds each query vector in every frame (LocoTrack, section 3.1, after TAPIR).
///
/// `coarse`: `[frames, h, w, c]` with query vectors `coarse_query` `[n, c]`; `fine` and `fine_query` likewise.
/// Costs are the products of a query with every cell, the coarse ones resized to the fine grid; the volume of
/// a few queries on one frame is all that is held.
pub fn initial_tracks(
    head: &CostHead,
    (coarse, coarse_query): (&Tensor, &Tensor),
    (fine, fine_query): (&Tensor, &Tensor),
) -> Result<InitialTracks> {
    let (frames, h_low, w_low, c_low) = coarse.dims4()?;
    let (fine_frames, h, w, c) = fine.dims4()?;
    let n = coarse_query.dims2()?.0;
    if fine_frames != frames || coarse_query.dims() != [n, c_low] || fine_query.dims() != [n, c] {
        bail!(
            "grids {:?} and {:?} do not fit their {n} queries",
            coarse.shape(),
            fine.shape()
        )
    }
    if !cpu::suits(&[coarse, coarse_query, fine, fine_query]) {
        return plain(head, (coarse, coarse_query), (fine, fine_query));
    }
    let numbers = head.numbers()?;
    let (low, low_query) = (cpu::floats(coarse)?, cpu::floats(coarse_query)?);
    let (high, high_query) = (cpu::floats(fine)?, cpu::floats(fine_query)?);
    let (rows, columns) = (resize::taps(h_low, h), resize::taps(w_low, w));
    let (cells_low, cells) = (h_low * w_low, h * w);
    let padded = (h + 2) * (w + 2);
    // [frame][query] → x, y, occlusion, expected distance.
    let mut found = vec![[0.0f32; 4]; frames * n];
    found
        .par_chunks_mut(n.max(1))
        .enumerate()
        .for_each(|(frame, found)| {
            found
                .par_chunks_mut(QUERIES)
                .enumerate()
                .for_each(|(block, found)| {
                    let count = found.len();
                    with_scratch(
                        count * (cells_low + cells) + 2 * padded + w_low + cells.max(2 * w),
                        |scratch| {
                            let (costs_low, rest) = scratch.split_at_mut(count * cells_low);
                            let (costs, rest) = rest.split_at_mut(count * cells);
                            let (stacked, rest) = rest.split_at_mut(2 * padded);
                            let (row, mixed) = rest.split_at_mut(w_low);
                            let first = block * QUERIES;
                            let query = Mat::rows(&low_query[first * c_low..], c_low);
                            let grid = Mat::transposed(
                                &low[frame * cells_low * c_low..][..cells_low * c_low],
                                c_low,
                            );
                            matmul(
                                count, cells_low, c_low, costs_low, cells_low, false, query, grid,
                            );
                            let query = Mat::rows(&high_query[first * c..], c);
                            let grid = Mat::transposed(&high[frame * cells * c..][..cells * c], c);
                            matmul(count, cells, c, costs, cells, false, query, grid);
                            stacked.fill(0.0); // the border that the SAME convolution reads
                            for (i, found) in found.iter_mut().enumerate() {
                                let (up, fine) = stacked.split_at_mut(padded);
                                simd(
                                    #[inline(always)]
                                    || {
                                        upsample(
                                            &costs_low[i * cells_low..][..cells_low],
                                            w_low,
                                            &rows,
                                            &columns,
                                            row,
                                            up,
                                        );
                                        for (row, padded) in costs[i * cells..][..cells]
                                            .chunks_exact(w)
                                            .zip(fine[w + 2..].chunks_exact_mut(w + 2))
                                        {
                                            padded[1..=w].copy_from_slice(row);
                                        }
                                        *found = read(head, &numbers, (up, fine), (h, w), mixed);
                                    },
                                );
                            }
                        },
                    );
                });
        });
    let pick = |k: usize| -> Vec<f32> {
        (0..n)
            .flat_map(|q| (0..frames).map(move |t| (q, t)))
            .map(|(q, t)| found[t * n + q][k])
            .collect()
    };
    let (x, y) = (
        cpu::tensor(pick(0), (n, frames))?,
        cpu::tensor(pick(1), (n, frames))?,
    );
    Ok(InitialTracks {
        positions: Tensor::stack(&[x, y], D::Minus1)?.contiguous()?,
        occlusion: cpu::tensor(pick(2), (n, frames))?,
        expected_dist: cpu::tensor(pick(3), (n, frames))?,
    })
}

/// Resizes one query's coarse costs into the inside of a padded picture.
#[inline(always)]
fn upsample(
    costs: &[f32],
    w_low: usize,
    rows: &[Tap],
    columns: &[Tap],
    mixed: &mut [f32],
    out: &mut [f32],
) {
    let stride = columns.len() + 2;
    for (out, row) in out[stride..].chunks_exact_mut(stride).zip(rows) {
        let (above, below) = (
            &costs[row.low * w_low..][..w_low],
            &costs[row.high * w_low..][..w_low],
        );
        for ((m, &a), &b) in mixed.iter_mut().zip(above).zip(below) {
            *m = a * (1.0 - row.weight) + b * row.weight;
        }
        for (o, tap) in out[1..].iter_mut().zip(columns) {
            *o = mixed[tap.low] * (1.0 - tap.weight) + mixed[tap.high] * tap.weight;
        }
    }
}

/// One query on one frame: x, y, occlusion and expected distance from its two padded cost pictures.
#[inline(always)]
fn read(
    head: &CostHead,
    numbers: &Numbers,
    costs: (&[f32], &[f32]),
    (h, w): (usize, usize),
    mixed: &mut [f32],
) -> [f32; 4] {
    let stride = w + 2;
    for (y, out) in mixed[..h * w].chunks_exact_mut(w).enumerate() {
        out.fill(numbers.conv_bias);
        for (picture, kernel) in [(costs.0, &numbers.conv[..9]), (costs.1, &numbers.conv[9..])] {
            for (tap, &k) in kernel.iter().enumerate() {
                let row = &picture[(y + tap / 3) * stride + tap % 3..][..w];
                out.iter_mut()
                    .zip(row)
                    .for_each(|(o, &v)| *o = v.mul_add(k, *o));
            }
        }
    }
    let (x, y) = soft_arg_max(&mixed[..h * w], w, head.temperature, head.radius);
    // The mixed costs are done with: their first rows hold the columns' extremes.
    let (top, rest) = mixed.split_at_mut(w);
    let bottom = &mut rest[..w];
    let low = statistics(costs.0, (h, w), (top, bottom));
    let high = statistics(costs.1, (h, w), (top, bottom));
    let features = [low[0], high[0], low[1], high[1], low[2], high[2]];
    let logit = |k: usize| {
        numbers.occ_bias[k]
            + numbers.occ[k * 6..][..6]
                .iter()
                .zip(features)
                .map(|(w, f)| w * f)
                .sum::<f32>()
    };
    [x, y, logit(0), logit(1)]
}

/// Mean of the cells' centres around the best one, weighted by a softmax.
///
/// The softmax's denominator over the whole picture cancels in the mean; the best cell's own share is never
/// below 1/cells, so the published floor of 1e-12 on the weights' sum cannot be met.
#[inline(always)]
fn soft_arg_max(costs: &[f32], w: usize, temperature: f32, radius: f32) -> (f32, f32) {
    let top = lanes_max(costs);
    let best = costs.iter().position(|&v| v == top).unwrap_or(0);
    let (by, bx) = (best / w, best % w);
    let reach = radius as usize;
    let (mut sum, mut sum_x, mut sum_y) = (0.0f32, 0.0f32, 0.0f32);
    for y in by.saturating_sub(reach)..(by + reach + 1).min(costs.len() / w) {
        for x in bx.saturating_sub(reach)..(bx + reach + 1).min(w) {
            let distance = (y.abs_diff(by).pow(2) + x.abs_diff(bx).pow(2)) as f32;
            if distance < radius * radius {
                let weight = math::exp(temperature * (costs[y * w + x] - top));
                sum += weight;
                sum_x += weight * (x as f32 + 0.5);
                sum_y += weight * (y as f32 + 0.5);
            }
        }
    }
    (sum_x / sum, sum_y / sum)
}

/// Mean, maximum and minimum over the inside of a padded picture. `top` and `bottom`: scratch, a row each.
#[inline(always)]
fn statistics(
    padded: &[f32],
    (h, w): (usize, usize),
    (top, bottom): (&mut [f32], &mut [f32]),
) -> [f32; 3] {
    let mut sum = 0.0f64;
    top.fill(f32::NEG_INFINITY);
    bottom.fill(f32::NEG_INFINITY);
    for row in padded[w + 2..].chunks_exact(w + 2).take(h) {
        let row = &row[1..=w];
        sum += f64::from(lanes_sum(row, |v| v));
        for ((&v, top), bottom) in row.iter().zip(top.iter_mut()).zip(bottom.iter_mut()) {
            *top = if v > *top { v } else { *top };
            *bottom = if -v > *bottom { -v } else { *bottom };
        }
    }
    [
        (sum / (h * w) as f64) as f32,
        lanes_max(top),
        -lanes_max(bottom),
    ]
}

/// The same by Candle's operations, the soft arg-max's window by comparison.
pub(crate) fn plain(
    head: &CostHead,
    (coarse, coarse_query): (&Tensor, &Tensor),
    (fine, fine_query): (&Tensor, &Tensor),
) -> Result<InitialTracks> {
    let (frames, h_low, w_low, c_low) = coarse.dims4()?;
    let (_, h, w, c) = fine.dims4()?;
    let n = coarse_query.dims2()?.0;
    let device = coarse.device();
    let wide = |t: &Tensor| t.to_dtype(DType::F32);
    let low =
        wide(coarse_query)?.matmul(&wide(coarse)?.reshape(((), c_low))?.t()?.contiguous()?)?;
    let low = resize::plain(&low.reshape((n * frames, h_low, w_low, 1))?, h, w)?;
    let high = wide(fine_query)?.matmul(&wide(fine)?.reshape(((), c))?.t()?.contiguous()?)?;
    let high = high.reshape((n * frames, h, w, 1))?;
    let stacked = Tensor::cat(&[&low, &high], 3)?;
    let mixed = stacked.permute((0, 3, 1, 2))?.contiguous()?.conv2d(
        &wide(&head.conv_weight)?,
        1,
        1,
        1,
        1,
    )?;
    let mixed = mixed
        .reshape((n * frames, h * w))?
        .broadcast_add(&wide(&head.conv_bias)?)?;

    let best = mixed.argmax(1)?.to_dtype(DType::F32)?;
    let best_y = (&best / w as f64)?.floor()?;
    let best_x = (&best - (&best_y * w as f64)?)?;
    let cell = Tensor::arange(0f32, (h * w) as f32, device)?;
    let cell_y = (&cell / w as f64)?.floor()?;
    let cell_x = (&cell - (&cell_y * w as f64)?)?;
    let apart =
        |cell: &Tensor, best: &Tensor| cell.unsqueeze(0)?.broadcast_sub(&best.unsqueeze(1)?)?.sqr();
    let near = (apart(&cell_y, &best_y)? + apart(&cell_x, &best_x)?)?
        .lt(f64::from(head.radius * head.radius))?;
    let top = mixed.max_keepdim(1)?;
    let weights = (mixed.broadcast_sub(&top)? * f64::from(head.temperature))?.exp()?;
    let weights = (weights * near.to_dtype(DType::F32)?)?;
    let total = weights.sum(1)?;
    let mean = |cell: &Tensor| {
        (weights.broadcast_mul(&(cell + 0.5)?)?.sum(1)? / &total)?.reshape((n, frames))
    };

    let costs = stacked.reshape((n * frames, h * w, 2))?;
    let features = Tensor::cat(&[costs.mean(1)?, costs.max(1)?, costs.min(1)?], 1)?;
    let logits = features
        .matmul(&wide(&head.occ_weight)?.t()?.contiguous()?)?
        .broadcast_add(&wide(&head.occ_bias)?)?;
    Ok(InitialTracks {
        positions: Tensor::stack(&[mean(&cell_x)?, mean(&cell_y)?], 2)?,
        occlusion: logits.narrow(1, 0, 1)?.reshape((n, frames))?,
        expected_dist: logits.narrow(1, 1, 1)?.reshape((n, frames))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    fn head() -> CostHead {
        let conv = (random((1, 2, 3, 3), 1), random(1, 2));
        CostHead::new(conv, (random((2, 6), 3), random(2, 4)), 20.0, 5.0).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn cpu_equals_plain(n in 1usize..20, frames in 1usize..4, h in 1usize..9, w in 1usize..9) {
            let (low, high) = (random((frames, h, w, 8), 5), random((frames, 2 * h, 2 * w, 4), 6));
            let (ql, qh) = (random((n, 8), 7), random((n, 4), 8));
            let got = initial_tracks(&head(), (&low, &ql), (&high, &qh)).unwrap();
            let want = plain(&head(), (&low, &ql), (&high, &qh)).unwrap();
            assert_close(&got.positions, &want.positions, 1e-3);
            assert_close(&got.occlusion, &want.occlusion, 1e-5);
            assert_close(&got.expected_dist, &want.expected_dist, 1e-5);
        }
    }

    #[test]
    fn a_single_sharp_peak_is_found_at_its_centre() {
        let mut costs = vec![0.0f32; 8 * 6];
        costs[3 * 6 + 4] = 10.0;
        assert_eq!(soft_arg_max(&costs, 6, 20.0, 5.0), (4.5, 3.5));
    }
}
