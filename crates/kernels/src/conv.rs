//! Convolutions over channels-last pictures.

use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, Mat, matmul, winograd, with_scratch};
use crate::same_padding;

/// Values of gathered input rows that one piece of work holds: about a second-level cache.
const GATHER_VALUES: usize = 150_000;

/// A convolution without bias, SAME padding, its weights laid out once for the device.
#[derive(Debug)]
pub struct Conv2d {
    /// `[c_out, c_in, kernel, kernel]`, as in the checkpoint.
    weight: Tensor,
    kernel: usize,
    stride: usize,
    c_in: usize,
    c_out: usize,
    packed: Packed,
}

/// The weights as the CPU form reads them.
#[derive(Debug)]
enum Packed {
    /// Not on a CPU.
    None,
    /// `[kernel, kernel, c_in, c_out]`.
    Rows(Vec<f32>),
    /// `[36, c_in, c_out]`, transformed.
    Winograd(Vec<f32>),
}

impl Conv2d {
    /// Takes weights `[c_out, c_in, kernel, kernel]`.
    pub fn new(weight: &Tensor, stride: usize) -> Result<Self> {
        let (c_out, c_in, kernel, kernel_x) = weight.dims4()?;
        if kernel != kernel_x || stride == 0 {
            bail!("a convolution of {kernel}×{kernel_x} with stride {stride} is not supported")
        }
        let weight = weight.contiguous()?;
        let packed = if !cpu::suits(&[&weight]) {
            Packed::None
        } else if winograd::suits(kernel, stride, c_in, c_out) {
            Packed::Winograd(winograd::transform_kernel(
                &cpu::floats(&weight)?,
                c_in,
                c_out,
            ))
        } else {
            let rows = weight.permute((2, 3, 1, 0))?.contiguous()?;
            Packed::Rows(cpu::floats(&rows)?.to_vec())
        };
        Ok(Self {
            weight,
            kernel,
            stride,
            c_in,
            c_out,
            packed,
        })
    }

    /// The weights `[kernel, kernel, c_in, c_out]`, where the CPU form keeps them so.
    pub(crate) fn rows(&self) -> Option<&[f32]> {
        match &self.packed {
            Packed::Rows(rows) => Some(rows),
            Packed::None | Packed::Winograd(_) => None,
        }
    }

    /// Channels of the result.
    pub fn c_out(&self) -> usize {
        self.c_out
    }

    /// Size of the result along an axis of `size`.
    pub fn output_size(&self, size: usize) -> usize {
        same_padding(size, self.kernel, self.stride).0
    }

    /// Floating-point operations by definition, for `[n, height, width, c_in]`.
    pub fn flops(&self, n: usize, height: usize, width: usize) -> u64 {
        let outputs = n * self.output_size(height) * self.output_size(width) * self.c_out;
        2 * (outputs * self.c_in * self.kernel * self.kernel) as u64
    }

    /// Convolves and adds `residual`.
    ///
    /// `x`: `[n, height, width, c_in]`, `residual` and result: `[n, ceil(height / stride),
    /// ceil(width / stride), c_out]`.
    pub fn forward(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let (n, height, width, c_in) = x.dims4()?;
        let (h_out, w_out) = (self.output_size(height), self.output_size(width));
        if c_in != self.c_in {
            bail!("a convolution of {} channels was given {c_in}", self.c_in)
        }
        let dims = (n, h_out, w_out, self.c_out);
        if let Some(r) = residual
            && r.dims4()? != dims
        {
            bail!(
                "a residual of {:?} does not fit a result of {dims:?}",
                r.shape()
            )
        }
        if matches!(self.packed, Packed::None) || !cpu::suits(&[x]) {
            return self.plain(x, residual);
        }
        let x = cpu::floats(x)?;
        let residual = residual.map(cpu::floats).transpose()?;
        let mut out = vec![0.0; n * h_out * w_out * self.c_out];
        match &self.packed {
            Packed::Winograd(kernel) => winograd::conv3x3(
                &x,
                (height, width),
                (c_in, self.c_out),
                kernel,
                residual.as_deref(),
                &mut out,
            ),
            Packed::Rows(kernel) => {
                self.gathered(&x, (height, width), kernel, residual.as_deref(), &mut out)
            }
            Packed::None => {}
        }
        cpu::tensor(out, dims)
    }

    /// Gathers the inputs of a few hundred outputs into rows and multiplies them with the weights.
    fn gathered(
        &self,
        x: &[f32],
        (height, width): (usize, usize),
        kernel: &[f32],
        residual: Option<&[f32]>,
        out: &mut [f32],
    ) {
        let (k, c_in, c_out) = (self.kernel, self.c_in, self.c_out);
        let (h_out, pad_y) = same_padding(height, k, self.stride);
        let (w_out, pad_x) = same_padding(width, k, self.stride);
        let depth = k * k * c_in;
        let pixels = (GATHER_VALUES / depth).clamp(64, 1024);
        let frame_out = h_out * w_out * c_out;
        out.par_chunks_mut(frame_out)
            .enumerate()
            .for_each(|(frame, out)| {
                let x = &x[frame * height * width * c_in..][..height * width * c_in];
                let residual = residual.map(|r| &r[frame * frame_out..][..frame_out]);
                out.par_chunks_mut(pixels * c_out)
                    .enumerate()
                    .for_each(|(block, out)| {
                        if let Some(r) = residual {
                            out.copy_from_slice(&r[block * pixels * c_out..][..out.len()]);
                        }
                        let count = out.len() / c_out;
                        with_scratch(count * depth, |rows| {
                            for (i, row) in rows.chunks_exact_mut(depth).enumerate() {
                                let at = block * pixels + i;
                                let top = (at / w_out * self.stride) as isize - pad_y as isize;
                                let left = (at % w_out * self.stride) as isize - pad_x as isize;
                                gather(x, (height, width, c_in), (top, left), k, row);
                            }
                            matmul(
                                count,
                                c_out,
                                depth,
                                out,
                                c_out,
                                residual.is_some(),
                                Mat::rows(rows, depth),
                                Mat::rows(kernel, c_out),
                            );
                        });
                    });
            });
    }

    /// The same by Candle's operations.
    pub fn plain(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let (_, height, width, _) = x.dims4()?;
        let padded = pad_same(
            &pad_same(x, 1, height, self.kernel, self.stride)?,
            2,
            width,
            self.kernel,
            self.stride,
        )?;
        let y = padded.permute((0, 3, 1, 2))?.contiguous()?.conv2d(
            &self.weight,
            0,
            self.stride,
            1,
            1,
        )?;
        let y = y.permute((0, 2, 3, 1))?.contiguous()?;
        match residual {
            Some(r) => y + r,
            None => Ok(y),
        }
    }
}

/// Pads one axis with zeros for a SAME convolution.
pub(crate) fn pad_same(
    x: &Tensor,
    axis: usize,
    size: usize,
    kernel: usize,
    stride: usize,
) -> Result<Tensor> {
    let (outputs, before) = same_padding(size, kernel, stride);
    let total = ((outputs - 1) * stride + kernel).saturating_sub(size);
    x.pad_with_zeros(axis, before, total - before)
}

/// Copies a k×k neighbourhood, zero outside the picture, to one row.
#[inline]
pub(crate) fn gather(
    x: &[f32],
    (height, width, c): (usize, usize, usize),
    (top, left): (isize, isize),
    k: usize,
    row: &mut [f32],
) {
    // The columns that lie inside are one run of the picture's row.
    let skip = (-left).clamp(0, k as isize) as usize;
    let stop = (width as isize - left).clamp(skip as isize, k as isize) as usize;
    for (ky, run) in row.chunks_exact_mut(k * c).enumerate() {
        let y = top + ky as isize;
        if y < 0 || y >= height as isize || skip == stop {
            run.fill(0.0);
            continue;
        }
        let from = (y as usize * width + (left + skip as isize) as usize) * c;
        run[..skip * c].fill(0.0);
        run[skip * c..stop * c].copy_from_slice(&x[from..from + (stop - skip) * c]);
        run[stop * c..].fill(0.0);
    }
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
            (k, stride, c_in, c_out) in prop::sample::select(vec![
                (7, 2, 3, 64), (3, 1, 16, 32), (3, 1, 64, 64), (3, 2, 8, 16), (1, 1, 16, 8), (1, 2, 16, 8), (3, 1, 5, 7),
            ]),
            n in 1usize..3, h in 1usize..21, w in 1usize..21, residual: bool,
        ) {
            let conv = Conv2d::new(&random((c_out, c_in, k, k), 1), stride).unwrap();
            let x = random((n, h, w, c_in), 2);
            let r = residual.then(|| random((n, conv.output_size(h), conv.output_size(w), c_out), 3));
            let got = conv.forward(&x, r.as_ref()).unwrap();
            let want = conv.plain(&x, r.as_ref()).unwrap();
            assert_close(&got, &want, 2e-5 * ((c_in * k * k) as f64).sqrt());
        }
    }

    #[test]
    fn a_kernel_of_one_centre_tap_copies_the_picture() {
        let mut weight = vec![0.0f32; 16 * 16 * 9];
        for c in 0..16 {
            weight[(c * 16 + c) * 9 + 4] = 1.0;
        }
        let weight = Tensor::from_vec(weight, (16, 16, 3, 3), &candle_core::Device::Cpu).unwrap();
        let x = random((1, 9, 10, 16), 4);
        assert_close(
            &Conv2d::new(&weight, 1).unwrap().forward(&x, None).unwrap(),
            &x,
            1e-5,
        );
    }

    #[test]
    fn wrong_channels_are_an_error() {
        let conv = Conv2d::new(&random((8, 4, 3, 3), 1), 1).unwrap();
        assert!(conv.forward(&random((1, 5, 5, 3), 2), None).is_err());
    }
}
