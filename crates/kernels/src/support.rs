//! Supports: the 7×7 neighbourhood of a query, sampled from a feature grid.

use candle_core::{DType, Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, simd};
use crate::{RADIUS, SUPPORT};

/// Samples the 7×7 support of each query (LocoTrack, section 3.2), trilinear over frames, rows and columns,
/// clamped to the border.
///
/// `grid`: `[frames, height, width, c]`; `queries`: one `(t, y, x)` each, `t` a frame index, `y` and `x`
/// raster positions in cells of the grid; result: `[queries, 7, 7, c]`, rows = dy.
pub fn sample_support(grid: &Tensor, queries: &[[f32; 3]]) -> Result<Tensor> {
    if !cpu::suits(&[grid]) {
        return plain(grid, queries);
    }
    let (frames, height, width, c) = grid.dims4()?;
    check(frames * height * width)?;
    let values = cpu::floats(grid)?;
    let mut out = vec![0.0; queries.len() * SUPPORT * SUPPORT * c];
    out.par_chunks_mut(SUPPORT * SUPPORT * c)
        .zip(queries)
        .for_each(|(out, &[t, y, x])| {
            let ft = axis(t, frames);
            for (i, out) in out.chunks_exact_mut(c).enumerate() {
                let fy = axis(y - 0.5 + offset(i / SUPPORT), height);
                let fx = axis(x - 0.5 + offset(i % SUPPORT), width);
                out.fill(0.0);
                for (frame, wt) in ft {
                    for (row, wy) in fy {
                        for (column, wx) in fx {
                            let weight = wt * wy * wx;
                            // A weight of zero must not bring in what is not a number.
                            if weight != 0.0 {
                                let cell =
                                    &values[((frame * height + row) * width + column) * c..][..c];
                                simd(
                                    #[inline(always)]
                                    || {
                                        out.iter_mut()
                                            .zip(cell)
                                            .for_each(|(o, &v)| *o = v.mul_add(weight, *o))
                                    },
                                );
                            }
                        }
                    }
                }
            }
        });
    cpu::tensor(out, (queries.len(), SUPPORT, SUPPORT, c))
}

fn check(cells: usize) -> Result<()> {
    if cells == 0 {
        bail!("a support cannot be sampled from an empty grid")
    }
    Ok(())
}

fn offset(i: usize) -> f32 {
    i as f32 - RADIUS as f32
}

/// The two cells around an index clamped to an axis, with their weights.
fn axis(at: f32, size: usize) -> [(usize, f32); 2] {
    let at = at.clamp(0.0, (size - 1) as f32);
    let low = at.floor();
    let weight = at - low;
    let low = low as usize;
    [(low, 1.0 - weight), ((low + 1).min(size - 1), weight)]
}

/// The same by Candle's gathers.
pub(crate) fn plain(grid: &Tensor, queries: &[[f32; 3]]) -> Result<Tensor> {
    let (frames, height, width, c) = grid.dims4()?;
    check(frames * height * width)?;
    let table = grid
        .to_dtype(DType::F32)?
        .reshape((frames * height * width, c))?;
    let (mut cells, mut weights) = (Vec::new(), Vec::new());
    for corner in 0..8 {
        for &[t, y, x] in queries {
            for i in 0..SUPPORT * SUPPORT {
                let (frame, wt) = axis(t, frames)[corner >> 2];
                let (row, wy) = axis(y - 0.5 + offset(i / SUPPORT), height)[corner >> 1 & 1];
                let (column, wx) = axis(x - 0.5 + offset(i % SUPPORT), width)[corner & 1];
                cells.push(((frame * height + row) * width + column) as u32);
                weights.push(wt * wy * wx);
            }
        }
    }
    let n = queries.len() * SUPPORT * SUPPORT;
    let cells = Tensor::from_vec(cells, 8 * n, grid.device())?;
    let weights = Tensor::from_vec(weights, (8 * n, 1), grid.device())?;
    let sampled = table.index_select(&cells, 0)?.broadcast_mul(&weights)?;
    let sum = sampled.reshape((8, n, c))?.sum(0)?;
    sum.reshape((queries.len(), SUPPORT, SUPPORT, c))?
        .to_dtype(grid.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn cpu_equals_plain(
            t in 1usize..4, h in 1usize..9, w in 1usize..9,
            q in prop::collection::vec((-1f32..5.0, -3f32..12.0, -3f32..12.0), 1..5),
        ) {
            let grid = random((t, h, w, 8), 1);
            let queries: Vec<_> = q.into_iter().map(|(t, y, x)| [t, y, x]).collect();
            assert_close(&sample_support(&grid, &queries).unwrap(), &plain(&grid, &queries).unwrap(), 1e-6);
        }
    }

    #[test]
    fn the_centre_of_a_cell_is_that_cell() {
        let grid = random((2, 9, 9, 4), 1);
        let support = sample_support(&grid, &[[1.0, 4.5, 5.5]]).unwrap();
        let want = grid
            .narrow(0, 1, 1)
            .unwrap()
            .narrow(1, 1, 7)
            .unwrap()
            .narrow(2, 2, 7)
            .unwrap();
        assert_close(&support, &want.contiguous().unwrap(), 0.0);
    }
}
