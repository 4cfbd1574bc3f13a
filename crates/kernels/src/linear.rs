//! Linear layers with what follows them.

use candle_core::{D, DType, Result, Tensor, bail};
use rayon::prelude::*;

use crate::cpu::{self, Mat, math, matmul, simd};

/// Rows of one piece of work.
const ROWS: usize = 192;

/// What follows a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// The exact GELU, x·Φ(x).
    Gelu,
}

/// `x · weightᵀ + bias`.
#[derive(Debug)]
pub struct Linear {
    /// `[inputs, outputs]`: the checkpoint's transposed.
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Takes `weight` `[outputs, inputs]`, as in the checkpoint, and `bias` `[outputs]`.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        Ok(Self {
            weight: weight.t()?.contiguous()?,
            bias: bias.map(Tensor::contiguous).transpose()?,
        })
    }

    /// Values that a row gives.
    pub fn outputs(&self) -> usize {
        self.weight.dims()[1]
    }

    /// Floating-point operations for so many rows.
    pub fn flops(&self, rows: usize) -> u64 {
        2 * (rows * self.weight.elem_count()) as u64
    }

    /// `activation(x · weightᵀ + bias + residual)`.
    ///
    /// `x`: `[…, inputs]`, `residual` and result: `[…, outputs]`.
    pub fn forward(
        &self,
        x: &Tensor,
        activation: Activation,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (inputs, outputs) = self.weight.dims2()?;
        if x.dim(D::Minus1)? != inputs {
            bail!(
                "a linear layer of {inputs} inputs was given {:?}",
                x.shape()
            )
        }
        let mut dims = x.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = outputs;
        }
        if let Some(r) = residual
            && r.dims() != dims
        {
            bail!(
                "a residual of {:?} does not fit a result of {dims:?}",
                r.shape()
            )
        }
        if !cpu::suits(&[x, &self.weight]) {
            return self.plain(x, activation, residual);
        }
        let (x, weight) = (cpu::floats(x)?, cpu::floats(&self.weight)?);
        let bias = self.bias.as_ref().map(cpu::floats).transpose()?;
        let residual = residual.map(cpu::floats).transpose()?;
        let mut out = vec![0.0; x.len() / inputs * outputs];
        let accumulate = bias.is_some() || residual.is_some();
        out.par_chunks_mut(ROWS * outputs)
            .enumerate()
            .for_each(|(block, out)| {
                if let Some(r) = &residual {
                    out.copy_from_slice(&r[block * ROWS * outputs..][..out.len()]);
                }
                if let Some(bias) = &bias {
                    simd(
                        #[inline(always)]
                        || {
                            for row in out.chunks_exact_mut(outputs) {
                                row.iter_mut().zip(bias.iter()).for_each(|(o, &b)| *o += b);
                            }
                        },
                    );
                }
                let rows = out.len() / outputs;
                let x = Mat::rows(&x[block * ROWS * inputs..][..rows * inputs], inputs);
                matmul(
                    rows,
                    outputs,
                    inputs,
                    out,
                    outputs,
                    accumulate,
                    x,
                    Mat::rows(&weight, outputs),
                );
                if activation == Activation::Gelu {
                    simd(
                        #[inline(always)]
                        || out.iter_mut().for_each(|v| *v = math::gelu(*v)),
                    );
                }
            });
        cpu::tensor(out, dims)
    }

    /// The same by Candle's operations.
    pub fn plain(
        &self,
        x: &Tensor,
        activation: Activation,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        let mut y = x.broadcast_matmul(&self.weight)?;
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(bias)?;
        }
        if let Some(r) = residual {
            y = (y + r)?;
        }
        match activation {
            Activation::None => Ok(y),
            Activation::Gelu => y.to_dtype(DType::F32)?.gelu_erf()?.to_dtype(x.dtype()),
        }
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
        fn cpu_equals_plain(n in 1usize..5, t in 1usize..130, i in 1usize..70, o in 1usize..70, gelu: bool, bias: bool, residual: bool) {
            let x = random((n, t, i), 1);
            let b = random(o, 3);
            let layer = Linear::new(&random((o, i), 2), bias.then_some(&b)).unwrap();
            let r = residual.then(|| random((n, t, o), 4));
            let activation = if gelu { Activation::Gelu } else { Activation::None };
            assert_close(
                &layer.forward(&x, activation, r.as_ref()).unwrap(),
                &layer.plain(&x, activation, r.as_ref()).unwrap(),
                1e-5,
            );
        }
    }
}
