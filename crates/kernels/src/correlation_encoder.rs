//! The small convolutions that read a local 4D correlation.

use candle_core::{Result, Tensor, bail};

use crate::conv::Conv2d;
use crate::cpu::{Mat, matmul, simd};
use crate::norm::{group_norm_relu, group_norm_relu_plain};
use crate::{SUPPORT, same_padding};

/// One layer's parameters: a SAME convolution with bias, group normalisation (groups of 16 channels), ReLU.
#[derive(Debug)]
pub struct EncoderLayer {
    /// `[c_out, c_in, kernel, kernel]`.
    pub weight: Tensor,
    /// `[c_out]`.
    pub bias: Tensor,
    /// `[c_out]`: the normalisation's scale.
    pub norm_weight: Tensor,
    /// `[c_out]`: the normalisation's shift.
    pub norm_bias: Tensor,
    /// The convolution's stride.
    pub stride: usize,
}

/// Layers that turn 7×7 pictures of 49 channels into one vector each.
#[derive(Debug)]
pub struct CorrelationEncoder {
    layers: Vec<Ready>,
}

#[derive(Debug)]
struct Ready {
    plain: EncoderLayer,
    conv: Conv2d,
    kernel: usize,
    c_in: usize,
    c_out: usize,
    /// Cells on a side before and after, and the padding before.
    size: usize,
    size_out: usize,
    pad: usize,
    packed: Option<Packed>,
}

/// Parameters as the CPU form reads them.
#[derive(Debug)]
struct Packed {
    bias: Vec<f32>,
    norm_weight: Vec<f32>,
    norm_bias: Vec<f32>,
}

impl CorrelationEncoder {
    /// Lays the layers' parameters out for the device.
    pub fn new(layers: Vec<EncoderLayer>) -> Result<Self> {
        let mut size = SUPPORT;
        let mut channels = SUPPORT * SUPPORT;
        let mut ready = Vec::new();
        for layer in layers {
            let (c_out, c_in, kernel, _) = layer.weight.dims4()?;
            if c_in != channels || c_out % 16 != 0 {
                bail!(
                    "a correlation encoder's layer {c_in} → {c_out} does not follow {channels} channels"
                )
            }
            let (size_out, pad) = same_padding(size, kernel, layer.stride);
            let conv = Conv2d::new(&layer.weight, layer.stride)?;
            let packed = if conv.rows().is_some() {
                Some(Packed {
                    bias: layer.bias.to_vec1()?,
                    norm_weight: layer.norm_weight.to_vec1()?,
                    norm_bias: layer.norm_bias.to_vec1()?,
                })
            } else {
                None
            };
            ready.push(Ready {
                plain: layer,
                conv,
                kernel,
                c_in,
                c_out,
                size,
                size_out,
                pad,
                packed,
            });
            (size, channels) = (size_out, c_out);
        }
        if ready.is_empty() {
            bail!("a correlation encoder needs a layer")
        }
        Ok(Self { layers: ready })
    }

    /// Values that one picture gives.
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.c_out)
    }

    /// Floating-point operations for one picture, counting the taps that fall inside it.
    pub fn flops(&self) -> u64 {
        let layer = |l: &Ready| {
            let taps: usize = (0..l.size_out).map(|o| l.taps(o).1.len()).sum();
            2 * (taps * taps * l.c_in * l.c_out) as u64
        };
        self.layers.iter().map(layer).sum()
    }

    /// Whether the CPU form can be taken.
    pub(crate) fn on_cpu(&self) -> bool {
        self.layers.iter().all(|layer| layer.packed.is_some())
    }

    /// Scratch values that `encode` needs for `n` pictures.
    pub(crate) fn scratch(&self, n: usize) -> usize {
        self.layers
            .iter()
            .map(|l| n * l.size_out * l.size_out * l.c_out)
            .sum()
    }

    /// Encodes `n` pictures `[n, 7, 7, 49]`; `emit` is given each picture's index and its vector.
    pub(crate) fn encode(
        &self,
        pictures: &[f32],
        n: usize,
        scratch: &mut [f32],
        mut emit: impl FnMut(usize, &[f32]),
    ) {
        let mut input: &[f32] = pictures;
        let mut rest = scratch;
        for layer in &self.layers {
            let (out, after) = rest.split_at_mut(n * layer.size_out * layer.size_out * layer.c_out);
            layer.forward(input, n, out);
            (input, rest) = (out, after);
        }
        let Some(last) = self.layers.last() else {
            return;
        };
        let (pixels, c) = (last.size_out * last.size_out, last.c_out);
        let mut mean = vec![0.0f32; c];
        for (i, picture) in input.chunks_exact(pixels * c).enumerate() {
            mean.fill(0.0);
            for pixel in picture.chunks_exact(c) {
                mean.iter_mut().zip(pixel).for_each(|(m, &v)| *m += v);
            }
            mean.iter_mut().for_each(|m| *m /= pixels as f32);
            emit(i, &mean);
        }
    }

    /// The same by Candle's operations. `x`: `[n, 7, 7, 49]`, result: `[n, outputs]`.
    pub(crate) fn plain(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.layers {
            let y = layer
                .conv
                .plain(&x, None)?
                .broadcast_add(&layer.plain.bias)?;
            x = group_norm_relu_plain(&y, &layer.plain.norm_weight, &layer.plain.norm_bias)?;
        }
        x.mean((1, 2))
    }
}

impl Ready {
    /// First input cell of output cell `o`, and the kernel's cells that fall inside.
    fn taps(&self, o: usize) -> (usize, std::ops::Range<usize>) {
        let start = o * self.plain.stride;
        let first = self.pad.saturating_sub(start);
        let last = self.kernel.min(self.size + self.pad - start);
        (start + first - self.pad, first..last)
    }

    /// Each output cell is a sum of products, one per kernel row: a row's cells inside the picture are one run
    /// of the input and one run of the weights, so nothing is gathered or padded.
    fn forward(&self, x: &[f32], n: usize, out: &mut [f32]) {
        let (Some(packed), Some(weights)) = (&self.packed, self.conv.rows()) else {
            return;
        };
        let (picture_in, picture_out) = (
            self.size * self.size * self.c_in,
            self.size_out * self.size_out * self.c_out,
        );
        simd(
            #[inline(always)]
            || {
                for pixel in out.chunks_exact_mut(self.c_out) {
                    pixel.copy_from_slice(&packed.bias);
                }
            },
        );
        for oy in 0..self.size_out {
            let (y, rows) = self.taps(oy);
            for ox in 0..self.size_out {
                let (x_in, columns) = self.taps(ox);
                let depth = columns.len() * self.c_in;
                let out = &mut out[(oy * self.size_out + ox) * self.c_out..];
                for (dy, ky) in rows.clone().enumerate() {
                    let input = &x[((y + dy) * self.size + x_in) * self.c_in..];
                    let weight =
                        &weights[(ky * self.kernel + columns.start) * self.c_in * self.c_out..];
                    let lhs = Mat {
                        data: input,
                        rs: picture_in,
                        cs: 1,
                    };
                    matmul(
                        n,
                        self.c_out,
                        depth,
                        out,
                        picture_out,
                        true,
                        lhs,
                        Mat::rows(weight, self.c_out),
                    );
                }
            }
        }
        let pixels = self.size_out * self.size_out;
        simd(
            #[inline(always)]
            || {
                group_norm_relu(
                    out,
                    pixels,
                    self.c_out,
                    &packed.norm_weight,
                    &packed.norm_bias,
                )
            },
        );
    }
}
