//! The refinement: correlation around the current positions, then a transformer over the frames of a track.

use candle_core::{D, DType, Tensor};
use track_kernels::{
    Activation, Attention, CorrelationEncoder, EncoderLayer, LayerNorm, Level, Linear,
    MOTION_FEATURES, attention, correlate_and_encode, motion_features,
};
use track_profile::Cost;

use super::config::{Config, HEAD, LAYERS, MODEL_SIZE, SLOPE_BASE, USED_OUTPUTS};
use super::cost::{self, name};
use super::encoder::Grids;
use super::layers::Layers;
use crate::weights::Weights;
use crate::{Result, Size};

/// Every track's state between iterations, f32.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// `[n, frames, 2]`: x, y in pixels of the 256×256 picture.
    pub(super) positions: Tensor,
    /// `[n, frames]`: logit.
    pub(super) occlusion: Tensor,
    /// `[n, frames]`: logit.
    pub(super) expected_dist: Tensor,
}

#[derive(Debug)]
pub(super) struct Refiner {
    /// One per level: hires, lowres, highest.
    correlation: Vec<CorrelationEncoder>,
    /// The columns of the input projection that read the correlation, with the bias.
    input_correlation: Linear,
    /// The columns that read the logits and the motion. Two products spare a token that joins them.
    input_motion: Linear,
    layers: Vec<Layer>,
    norm_out: LayerNorm,
    output: Linear,
    config: Config,
}

#[derive(Debug)]
struct Layer {
    norm_1: LayerNorm,
    /// Query, key and value projections side by side.
    qkv: Linear,
    project: Linear,
    norm_2: LayerNorm,
    dense_0: Linear,
    dense_2: Linear,
}

impl Refiner {
    pub(super) fn new(weights: &Weights, config: &Config) -> Result<Self> {
        let mut correlation = Vec::new();
        for level in 0..3 {
            let mut layers = Vec::new();
            for (k, &(_, _, _, stride)) in config.correlation.iter().enumerate() {
                let (weight, bias) = weights.pair(&format!("cmdtop.{level}.conv.{k}.0"))?;
                let (norm_weight, norm_bias) =
                    weights.pair(&format!("cmdtop.{level}.conv.{k}.1"))?;
                layers.push(EncoderLayer {
                    weight,
                    bias,
                    norm_weight,
                    norm_bias,
                    stride,
                });
            }
            correlation.push(CorrelationEncoder::new(layers)?);
        }
        let linear = |name: &str| {
            let (weight, bias) = weights.pair(name)?;
            Linear::new(&weight, Some(&bias))
        };
        let norm = |name: &str| {
            weights
                .pair(name)
                .map(|(weight, bias)| LayerNorm::new(weight, bias))
        };
        // A token is [occlusion, expected distance, correlation, motion].
        let (input, input_bias) = weights.pair("torch_pips_mixer.input_proj")?;
        let read = 3 * 2 * config.correlation_outputs();
        let logits = input.narrow(1, 0, 2)?;
        let motion = input.narrow(1, 2 + read, MOTION_FEATURES - 2)?;
        let mut layers = Vec::new();
        for i in 0..LAYERS {
            let name = format!("torch_pips_mixer.transformer.layers.{i}");
            let (qkv, qkv_bias) = weights.joined(
                &["query_proj", "key_proj", "value_proj"].map(|part| format!("{name}.attn.{part}")),
            )?;
            layers.push(Layer {
                norm_1: norm(&format!("{name}.layer_norm1"))?,
                qkv: Linear::new(&qkv, Some(&qkv_bias))?,
                project: linear(&format!("{name}.attn.final_proj"))?,
                norm_2: norm(&format!("{name}.layer_norm2"))?,
                dense_0: linear(&format!("{name}.dense.0"))?,
                dense_2: linear(&format!("{name}.dense.2"))?,
            });
        }
        // The other 384 outputs feed nothing.
        let (output, output_bias) = weights.pair("torch_pips_mixer.output_proj")?;
        Ok(Self {
            correlation,
            input_correlation: Linear::new(&input.narrow(1, 2, read)?, Some(&input_bias))?,
            input_motion: Linear::new(&Tensor::cat(&[logits, motion], 1)?, None)?,
            layers,
            norm_out: norm("torch_pips_mixer.transformer.ln_out")?,
            output: Linear::new(
                &output.narrow(0, 0, USED_OUTPUTS)?,
                Some(&output_bias.narrow(0, 0, USED_OUTPUTS)?),
            )?,
            config: *config,
        })
    }

    /// One iteration (paper, section 3.3).
    ///
    /// `grids` and `supports` are those of the refinement resolution `size`, supports in the order of
    /// [`Grids::levels`].
    pub(super) fn iterate(
        &self,
        state: &State,
        grids: &Grids,
        supports: &[Tensor; 3],
        size: Size,
        layers: &Layers<'_>,
    ) -> Result<State> {
        let (n, frames, _) = state.positions.dims3()?;
        let rows = n * frames;
        let dim = self.config.dim;
        let correlation = self.correlate(&state.positions, grids, supports, layers)?;
        // Differences in pixels of the refinement resolution, as a share of the model's.
        let share = |side: usize, model: usize| side as f32 / model as f32 / model as f32;
        let scale = [
            share(size.width, MODEL_SIZE.width),
            share(size.height, MODEL_SIZE.height),
        ];
        let motion = layers.run(name::MOTION, cost::motion(rows), || {
            motion_features(
                &state.positions,
                &state.occlusion,
                &state.expected_dist,
                scale,
            )
        })?;
        let cost = cost::linear(rows, self.config.token(), dim);
        let mut h = layers.run(name::INPUT, cost, || {
            let h = self.input_motion.forward(&motion, Activation::None, None)?;
            self.input_correlation
                .forward(&correlation, Activation::None, Some(&h))
        })?;
        for layer in &self.layers {
            h = layer.forward(&h, dim, layers)?;
        }
        let h = normed(&self.norm_out, &h, layers)?;
        layers.run(name::OUTPUT, cost::output(rows, dim), || {
            let out = self.output.forward(&h, Activation::None, None)?;
            moved(state, &out.to_dtype(DType::F32)?, size)
        })
    }

    /// `[n, frames, 768]`: the encoded correlations of all levels.
    fn correlate(
        &self,
        positions: &Tensor,
        grids: &Grids,
        supports: &[Tensor; 3],
        layers: &Layers<'_>,
    ) -> Result<Tensor> {
        let (n, frames, _) = positions.dims3()?;
        let mut cost = Cost::default();
        let mut levels = Vec::new();
        for ((grid, support), encoder) in grids
            .levels()
            .into_iter()
            .zip(supports)
            .zip(&self.correlation)
        {
            let (_, height, width, c) = grid.dims4()?;
            cost += cost::correlation(n, frames, height * width, c)
                + cost::encode_correlation(&self.config, n * frames);
            let scale = [
                width as f32 / MODEL_SIZE.width as f32,
                height as f32 / MODEL_SIZE.height as f32,
            ];
            levels.push(Level {
                grid,
                support,
                scale,
                encoder,
            });
        }
        layers.run(name::CORRELATION, cost, || {
            correlate_and_encode(&levels, positions)
        })
    }
}

impl Layer {
    /// A pre-norm transformer layer over the frames of each track. `h`: `[n, frames, dim]`.
    fn forward(&self, h: &Tensor, dim: usize, layers: &Layers<'_>) -> Result<Tensor> {
        let (n, frames, _) = h.dims3()?;
        let rows = n * frames;
        let x = normed(&self.norm_1, h, layers)?;
        let qkv = layers.run(name::QKV, cost::linear(rows, dim, 3 * dim), || {
            self.qkv.forward(&x, Activation::None, None)
        })?;
        let heads = Attention {
            heads: dim / HEAD,
            slope_base: SLOPE_BASE,
        };
        let mixed = layers.run(name::ATTENTION, cost::attention(n, frames, dim), || {
            attention(&qkv, heads)
        })?;
        let cost = cost::linear(rows, dim, dim) + cost::residual(rows * dim);
        let h = layers.run(name::PROJECT, cost, || {
            self.project.forward(&mixed, Activation::None, Some(h))
        })?;
        let x = normed(&self.norm_2, &h, layers)?;
        layers.run(name::DENSE, cost::dense(rows, dim), || {
            let wide = self.dense_0.forward(&x, Activation::Gelu, None)?;
            self.dense_2.forward(&wide, Activation::None, Some(&h))
        })
    }
}

/// A layer norm of tokens under its layer's name.
fn normed(norm: &LayerNorm, h: &Tensor, layers: &Layers<'_>) -> Result<Tensor> {
    let cost = cost::norm(h.elem_count(), h.dim(D::Minus1)?);
    layers.run(name::NORM, cost, || norm.forward(h))
}

/// The state with the outputs `[n, frames, 4]` added, whose positions are in pixels of `size`.
fn moved(state: &State, out: &Tensor, size: Size) -> candle_core::Result<State> {
    let part = |i: usize| out.narrow(D::Minus1, i, 1)?.squeeze(D::Minus1);
    let pixels = Tensor::new(
        &[
            MODEL_SIZE.width as f32 / size.width as f32,
            MODEL_SIZE.height as f32 / size.height as f32,
        ],
        out.device(),
    )?;
    let moved = out.narrow(D::Minus1, 0, 2)?.broadcast_mul(&pixels)?;
    Ok(State {
        positions: (&state.positions + moved)?,
        occlusion: (&state.occlusion + part(2)?)?,
        expected_dist: (&state.expected_dist + part(3)?)?,
    })
}
