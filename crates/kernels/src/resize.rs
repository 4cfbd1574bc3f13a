//! Resizing pictures.

use candle_core::{DType, Device, Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, simd};

/// Bilinear resize with half-pixel centres and no antialiasing, as the models were trained with.
///
/// `x`: `[n, height, width, c]`, f32 or u8 (converted as it is, 0–255); result: f32 `[n, h_out, w_out, c]`.
pub fn resize_bilinear(x: &Tensor, h_out: usize, w_out: usize) -> Result<Tensor> {
    let (n, height, width, c) = x.dims4()?;
    if height == 0 || width == 0 || h_out == 0 || w_out == 0 {
        bail!("a picture of {width}×{height} cannot be resized to {w_out}×{h_out}")
    }
    let x = x.to_dtype(DType::F32)?.contiguous()?;
    if (height, width) == (h_out, w_out) {
        return Ok(x);
    }
    if !cpu::suits(&[&x]) {
        return plain(&x, h_out, w_out);
    }
    let values = cpu::floats(&x)?;
    let (rows, columns) = (taps(height, h_out), taps(width, w_out));
    let mut out = vec![0.0; n * h_out * w_out * c];
    out.par_chunks_mut(w_out * c)
        .enumerate()
        .for_each(|(row, out)| {
            let tap = rows[row % h_out];
            let picture = &values[row / h_out * height * width * c..][..height * width * c];
            let (above, below) = (
                &picture[tap.low * width * c..][..width * c],
                &picture[tap.high * width * c..][..width * c],
            );
            simd(
                #[inline(always)]
                || blend_row(above, below, tap.weight, &columns, c, out),
            );
        });
    cpu::tensor(out, (n, h_out, w_out, c))
}

/// Two source cells and the share of the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    pub(crate) low: usize,
    pub(crate) high: usize,
    pub(crate) weight: f32,
}

/// Where each of `outputs` cells reads along an axis of `size`; clamped to the border.
pub(crate) fn taps(size: usize, outputs: usize) -> Vec<Tap> {
    let scale = size as f32 / outputs as f32;
    (0..outputs)
        .map(|i| {
            let at = (scale * (i as f32 + 0.5) - 0.5).max(0.0);
            let low = (at as usize).min(size - 1);
            Tap {
                low,
                high: (low + 1).min(size - 1),
                weight: at - low as f32,
            }
        })
        .collect()
}

#[inline(always)]
fn blend_row(above: &[f32], below: &[f32], wy: f32, columns: &[Tap], c: usize, out: &mut [f32]) {
    for (out, tap) in out.chunks_exact_mut(c).zip(columns) {
        let (l, h) = (tap.low * c, tap.high * c);
        for (i, o) in out.iter_mut().enumerate() {
            let top = above[l + i] * (1.0 - tap.weight) + above[h + i] * tap.weight;
            let bottom = below[l + i] * (1.0 - tap.weight) + below[h + i] * tap.weight;
            *o = top * (1.0 - wy) + bottom * wy;
        }
    }
}

/// The same as a product with an interpolation matrix per axis.
pub(crate) fn plain(x: &Tensor, h_out: usize, w_out: usize) -> Result<Tensor> {
    let (n, height, width, c) = x.dims4()?;
    let device = x.device();
    let rows = matrix(height, h_out, device)?;
    let columns = matrix(width, w_out, device)?;
    let y = rows.broadcast_matmul(&x.reshape((n, height, width * c))?)?;
    let y = y.reshape((n * h_out, width, c))?;
    columns.broadcast_matmul(&y)?.reshape((n, h_out, w_out, c))
}

/// `[outputs, size]`: each row holds the two weights of an output.
fn matrix(size: usize, outputs: usize, device: &Device) -> Result<Tensor> {
    let mut values = vec![0.0f32; outputs * size];
    for (row, tap) in values.chunks_exact_mut(size).zip(taps(size, outputs)) {
        row[tap.low] += 1.0 - tap.weight;
        row[tap.high] += tap.weight;
    }
    Tensor::from_vec(values, (outputs, size), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn cpu_equals_plain(h in 1usize..20, w in 1usize..20, ho in 1usize..40, wo in 1usize..40) {
            let x = random((2, h, w, 3), 1);
            assert_close(&resize_bilinear(&x, ho, wo).unwrap(), &plain(&x, ho, wo).unwrap(), 1e-6);
        }
    }

    #[test]
    fn doubling_puts_a_quarter_and_three_quarters() {
        let x = Tensor::new(&[0.0f32, 4.0], &Device::Cpu)
            .unwrap()
            .reshape((1, 1, 2, 1))
            .unwrap();
        let y = resize_bilinear(&x, 1, 4)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1::<f32>()
            .unwrap();
        assert_eq!(y, [0.0, 1.0, 3.0, 4.0]);
    }
}
