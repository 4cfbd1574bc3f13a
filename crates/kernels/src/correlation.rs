//! The local 4D correlation around a track, and its encoding.

use candle_core::{DType, Result, Tensor, bail};
use rayon::prelude::*;

use crate::conv::gather;
use crate::correlation_encoder::CorrelationEncoder;
use crate::cpu::{self, Mat, matmul, simd, with_scratch};
use crate::{RADIUS, SUPPORT};

/// Whole cells on a side under a 7×7 neighbourhood at a fractional position.
const PATCH: usize = SUPPORT + 1;
/// Cells of a neighbourhood.
const CELLS: usize = SUPPORT * SUPPORT;
/// Frames of a track whose correlations are encoded together.
const FRAMES: usize = 48;
/// Frames whose patches are gathered for one product.
const GATHERED: usize = 8;

/// One feature grid with what is compared against it.
#[derive(Debug)]
pub struct Level<'a> {
    /// `[frames, height, width, c]`.
    pub grid: &'a Tensor,
    /// `[n, 7, 7, c]`: the queries' supports.
    pub support: &'a Tensor,
    /// What a position along x and y is multiplied by to be in cells of the grid.
    pub scale: [f32; 2],
    /// Reads the correlation, once from each side.
    pub encoder: &'a CorrelationEncoder,
}

impl Level<'_> {
    /// Shapes that fit each other, or an error.
    fn check(&self, positions: &Tensor) -> Result<(usize, usize)> {
        let (n, frames, two) = positions.dims3()?;
        let (grid_frames, _, _, c) = self.grid.dims4()?;
        if two != 2 || grid_frames != frames || self.support.dims() != [n, SUPPORT, SUPPORT, c] {
            bail!(
                "positions {:?}, a grid {:?} and supports {:?} do not fit each other",
                positions.shape(),
                self.grid.shape(),
                self.support.shape()
            )
        }
        Ok((n, frames))
    }
}

/// Correlates each level around each position with the query's support and encodes it from both sides
/// (LocoTrack, sections 3.1 and 3.2). The correlation itself is never stored beyond a block.
///
/// `positions`: f32 `[n, frames, 2]` (x, y); result: `[n, frames, levels · 2 · outputs]`, per level first the
/// encoding over the position's neighbourhood, then the one over the support.
pub fn correlate_and_encode(levels: &[Level<'_>], positions: &Tensor) -> Result<Tensor> {
    let (n, frames, _) = positions.dims3()?;
    let width: usize = levels.iter().map(|level| 2 * level.encoder.outputs()).sum();
    let mut fast = cpu::suits(&[positions]);
    for level in levels {
        level.check(positions)?;
        fast &= cpu::suits(&[level.grid, level.support]) && level.encoder.on_cpu();
    }
    if !fast {
        let levels: Result<Vec<_>> = levels
            .iter()
            .map(|level| encode_plain(level, positions))
            .collect();
        return Tensor::cat(&levels?, 2);
    }
    let at = cpu::floats(positions)?;
    let data: Vec<_> = levels
        .iter()
        .map(|level| {
            Ok((
                cpu::floats(level.grid)?,
                cpu::floats(level.support)?,
                level.grid.dims4()?,
            ))
        })
        .collect::<Result<_>>()?;
    let mut out = vec![0.0; n * frames * width];
    out.par_chunks_mut(frames * width)
        .enumerate()
        .for_each(|(track, out)| {
            out.par_chunks_mut(FRAMES * width)
                .enumerate()
                .for_each(|(block, out)| {
                    let first = block * FRAMES;
                    let count = out.len() / width;
                    let mut column = 0;
                    for (level, (grid, support, (_, height, grid_width, c))) in
                        levels.iter().zip(&data)
                    {
                        let support = &support[track * CELLS * c..][..CELLS * c];
                        let place = |i: usize| {
                            let frame = first + i;
                            let p = &at[(track * frames + frame) * 2..][..2];
                            let picture =
                                &grid[frame * height * grid_width * c..][..height * grid_width * c];
                            (
                                picture,
                                Place::new(p[0] * level.scale[0], p[1] * level.scale[1]),
                            )
                        };
                        let outputs = level.encoder.outputs();
                        let volume = 2 * count * CELLS * CELLS;
                        with_scratch(volume + level.encoder.scratch(2 * count), |scratch| {
                            let (pictures, rest) = scratch.split_at_mut(volume);
                            let (around, support_side) = pictures.split_at_mut(volume / 2);
                            volumes((*height, *grid_width, *c), count, place, support, around);
                            transpose(around, support_side);
                            level
                                .encoder
                                .encode(pictures, 2 * count, rest, |picture, vector| {
                                    // The first half of the pictures are seen from the position, the second from the support.
                                    let at = picture % count * width
                                        + column
                                        + picture / count * outputs;
                                    out[at..at + outputs].copy_from_slice(vector);
                                });
                        });
                        column += 2 * outputs;
                    }
                });
        });
    cpu::tensor(out, (n, frames, width))
}

/// The correlation alone: `[n, frames, 7, 7, 7, 7]`, rows and columns around the position, then of the support.
///
/// A sample outside the grid counts as zero. `level.encoder` is not used.
pub fn correlate(level: &Level<'_>, positions: &Tensor) -> Result<Tensor> {
    let (n, frames) = level.check(positions)?;
    let dims = (n, frames, CELLS, CELLS);
    let flat = if cpu::suits(&[positions, level.grid, level.support]) {
        let (_, height, width, c) = level.grid.dims4()?;
        let (at, grid, support) = (
            cpu::floats(positions)?,
            cpu::floats(level.grid)?,
            cpu::floats(level.support)?,
        );
        let mut out = vec![0.0; n * frames * CELLS * CELLS];
        out.par_chunks_mut(frames * CELLS * CELLS)
            .enumerate()
            .for_each(|(track, out)| {
                let place = |frame: usize| {
                    let p = &at[(track * frames + frame) * 2..][..2];
                    let picture = &grid[frame * height * width * c..][..height * width * c];
                    (
                        picture,
                        Place::new(p[0] * level.scale[0], p[1] * level.scale[1]),
                    )
                };
                volumes(
                    (height, width, c),
                    frames,
                    place,
                    &support[track * CELLS * c..][..CELLS * c],
                    out,
                );
            });
        cpu::tensor(out, dims)?
    } else {
        correlate_plain(level, positions)?.reshape(dims)?
    };
    flat.reshape(vec![n, frames, SUPPORT, SUPPORT, SUPPORT, SUPPORT])
}

/// The whole cells under a neighbourhood and the offset that all its samples share.
#[derive(Clone, Copy)]
struct Place {
    left: isize,
    top: isize,
    fx: f32,
    fy: f32,
}

impl Place {
    /// `x`, `y`: raster position in cells.
    fn new(x: f32, y: f32) -> Self {
        // Far outside is far outside: the bound keeps the integers small and every corner out of the grid.
        let axis = |v: f32| {
            let index = (v - 0.5).clamp(-1e6, 1e6);
            (
                index.floor() as isize - RADIUS as isize,
                index - index.floor(),
            )
        };
        let ((left, fx), (top, fy)) = (axis(x), axis(y));
        Self { left, top, fx, fy }
    }
}

/// Correlations `[count, 49, 49]` of `count` places with one support `[49, c]`.
///
/// The 49 samples of a place share one fraction, so the 8×8 whole cells are correlated and the results blended.
fn volumes<'a>(
    (height, width, c): (usize, usize, usize),
    count: usize,
    place: impl Fn(usize) -> (&'a [f32], Place),
    support: &[f32],
    out: &mut [f32],
) {
    let patch = PATCH * PATCH;
    with_scratch(
        GATHERED * patch * (c + CELLS) + SUPPORT * PATCH * CELLS,
        |scratch| {
            let (cells, rest) = scratch.split_at_mut(GATHERED * patch * c);
            let (products, rows) = rest.split_at_mut(GATHERED * patch * CELLS);
            for (block, out) in out.chunks_mut(GATHERED * CELLS * CELLS).enumerate() {
                let n = GATHERED.min(count - block * GATHERED);
                for (i, cells) in cells.chunks_exact_mut(patch * c).take(n).enumerate() {
                    let (picture, place) = place(block * GATHERED + i);
                    let corner = (place.top, place.left);
                    gather(picture, (height, width, c), corner, PATCH, cells);
                }
                matmul(
                    n * patch,
                    CELLS,
                    c,
                    products,
                    CELLS,
                    false,
                    Mat::rows(cells, c),
                    Mat::transposed(support, c),
                );
                for (i, out) in out.chunks_exact_mut(CELLS * CELLS).enumerate() {
                    let (_, place) = place(block * GATHERED + i);
                    let products = &products[i * patch * CELLS..][..patch * CELLS];
                    simd(
                        #[inline(always)]
                        || blend(products, place, rows, out),
                    );
                }
            }
        },
    );
}

/// 8×8 products to 7×7 samples, each with the 49 cells of the support.
#[inline(always)]
fn blend(products: &[f32], place: Place, rows: &mut [f32], out: &mut [f32]) {
    let row = PATCH * CELLS;
    for (y, mixed) in rows.chunks_exact_mut(row).enumerate() {
        let (above, below) = (
            &products[y * row..][..row],
            &products[(y + 1) * row..][..row],
        );
        for ((m, &a), &b) in mixed.iter_mut().zip(above).zip(below) {
            *m = a * (1.0 - place.fy) + b * place.fy;
        }
    }
    for (mixed, out) in rows
        .chunks_exact(row)
        .zip(out.chunks_exact_mut(SUPPORT * CELLS))
    {
        for ((o, &a), &b) in out
            .iter_mut()
            .zip(&mixed[..SUPPORT * CELLS])
            .zip(&mixed[CELLS..])
        {
            *o = a * (1.0 - place.fx) + b * place.fx;
        }
    }
}

/// Transposes 49×49 matrices.
fn transpose(from: &[f32], to: &mut [f32]) {
    for (from, to) in from
        .chunks_exact(CELLS * CELLS)
        .zip(to.chunks_exact_mut(CELLS * CELLS))
    {
        for (i, row) in to.chunks_exact_mut(CELLS).enumerate() {
            for (j, v) in row.iter_mut().enumerate() {
                *v = from[j * CELLS + i];
            }
        }
    }
}

/// `[n, frames, 49, 49]` by Candle's operations: every sample interpolated, then one product a track and frame.
fn correlate_plain(level: &Level<'_>, positions: &Tensor) -> Result<Tensor> {
    let (n, frames, _) = positions.dims3()?;
    let (_, height, width, c) = level.grid.dims4()?;
    let at = positions
        .to_dtype(DType::F32)?
        .flatten_all()?
        .to_vec1::<f32>()?;
    let samples = n * frames * CELLS;
    let (mut cells, mut weights) = (
        Vec::with_capacity(4 * samples),
        Vec::with_capacity(4 * samples),
    );
    for corner in 0..4 {
        for (i, p) in at.chunks_exact(2).enumerate() {
            let place = Place::new(p[0] * level.scale[0], p[1] * level.scale[1]);
            let frame = i % frames;
            for sample in 0..CELLS {
                let y = place.top + (sample / SUPPORT + corner / 2) as isize;
                let x = place.left + (sample % SUPPORT + corner % 2) as isize;
                let inside = y >= 0 && y < height as isize && x >= 0 && x < width as isize;
                let wy = if corner / 2 == 0 {
                    1.0 - place.fy
                } else {
                    place.fy
                };
                let wx = if corner % 2 == 0 {
                    1.0 - place.fx
                } else {
                    place.fx
                };
                let cell = (frame * height + y.max(0) as usize) * width + x.max(0) as usize;
                cells.push(if inside { cell as u32 } else { 0 });
                weights.push(if inside { wy * wx } else { 0.0 });
            }
        }
    }
    let device = level.grid.device();
    let table = level.grid.to_dtype(DType::F32)?.reshape(((), c))?;
    let sampled = table
        .index_select(&Tensor::from_vec(cells, 4 * samples, device)?, 0)?
        .broadcast_mul(&Tensor::from_vec(weights, (4 * samples, 1), device)?)?
        .reshape((4, n, frames * CELLS, c))?
        .sum(0)?;
    let support = level.support.to_dtype(DType::F32)?.reshape((n, CELLS, c))?;
    let volume = sampled.matmul(&support.t()?.contiguous()?)?;
    volume.reshape((n, frames, CELLS, CELLS))
}

/// One level's encoding by Candle's operations.
fn encode_plain(level: &Level<'_>, positions: &Tensor) -> Result<Tensor> {
    let (n, frames) = level.check(positions)?;
    let volume = correlate_plain(level, positions)?.reshape((n * frames, CELLS, CELLS))?;
    let picture = (n * frames, SUPPORT, SUPPORT, CELLS);
    let around = level.encoder.plain(&volume.reshape(picture)?)?;
    let support_side = level
        .encoder
        .plain(&volume.t()?.contiguous()?.reshape(picture)?)?;
    Tensor::cat(&[around, support_side], 1)?.reshape((n, frames, 2 * level.encoder.outputs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncoderLayer;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    fn encoder(layers: &[(usize, usize, usize, usize)]) -> CorrelationEncoder {
        let layers = layers
            .iter()
            .map(|&(c_in, c_out, kernel, stride)| EncoderLayer {
                weight: (random((c_out, c_in, kernel, kernel), 5) * 0.1).unwrap(),
                bias: random(c_out, 6),
                norm_weight: random(c_out, 7),
                norm_bias: random(c_out, 8),
                stride,
            })
            .collect();
        CorrelationEncoder::new(layers).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn cpu_equals_plain(
            n in 1usize..4, frames in 1usize..60, h in 1usize..12, w in 1usize..12, base: bool, spread in 1f32..40.0,
        ) {
            let encoder = if base {
                encoder(&[(49, 64, 3, 2), (64, 128, 3, 2), (128, 128, 2, 2)])
            } else {
                encoder(&[(49, 64, 5, 4), (64, 128, 2, 2)])
            };
            let (grid, support) = (random((frames, h, w, 8), 1), random((n, 7, 7, 8), 2));
            let positions = (random((n, frames, 2), 3) * f64::from(spread)).unwrap();
            let level = Level { grid: &grid, support: &support, scale: [0.5, 0.75], encoder: &encoder };
            let flat = correlate(&level, &positions).unwrap().reshape((n, frames, CELLS, CELLS)).unwrap();
            assert_close(&flat, &correlate_plain(&level, &positions).unwrap(), 1e-5);
            let got = correlate_and_encode(&[level], &positions).unwrap();
            let level = Level { grid: &grid, support: &support, scale: [0.5, 0.75], encoder: &encoder };
            assert_close(&got, &encode_plain(&level, &positions).unwrap(), 2e-4);
        }
    }

    #[test]
    fn positions_that_are_no_numbers_or_far_away_do_no_harm() {
        let encoder = encoder(&[(49, 64, 5, 4), (64, 128, 2, 2)]);
        let (grid, support) = (random((3, 8, 8, 8), 1), random((1, 7, 7, 8), 2));
        let positions = Tensor::new(
            &[[[f32::NAN, 1.0], [1e30, -1e30], [f32::INFINITY, 3.0]]],
            grid.device(),
        )
        .unwrap();
        let level = Level {
            grid: &grid,
            support: &support,
            scale: [1.0, 1.0],
            encoder: &encoder,
        };
        assert_eq!(
            correlate_and_encode(&[level], &positions).unwrap().dims(),
            [1, 3, 256]
        );
    }
}
