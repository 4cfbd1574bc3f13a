//! The refinement: correlation around the current positions, then a transformer over the frames of a track.

use candle_core::{D, DType, Result, Tensor};
use track_kernels::{
    Activation, Attention, CorrelationEncoder, EncoderLayer, LayerNorm, Level, Linear,
    MOTION_FEATURES, attention, correlate_and_encode, motion_features,
};
use track_profile::{Cost, Profiler};

use super::config::{Config, HEAD, LAYERS, MODEL_SIZE, SLOPE_BASE, USED_OUTPUTS};
use super::encoder::Grids;
use crate::Size;
use crate::weights::Weights;

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
    heads: usize,
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
            let projections: Vec<_> = ["query_proj", "key_proj", "value_proj"]
                .iter()
                .map(|part| weights.pair(&format!("{name}.attn.{part}")))
                .collect::<Result<_>>()?;
            let joined = |pick: fn(&(Tensor, Tensor)) -> &Tensor| {
                Tensor::cat(&projections.iter().map(pick).collect::<Vec<_>>(), 0)
            };
            layers.push(Layer {
                norm_1: norm(&format!("{name}.layer_norm1"))?,
                qkv: Linear::new(&joined(|p| &p.0)?, Some(&joined(|p| &p.1)?))?,
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
            heads: config.dim / HEAD,
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
        profiler: &Profiler,
    ) -> Result<State> {
        let (n, frames, _) = state.positions.dims3()?;
        let rows = n * frames;
        let correlation = self.correlate(&state.positions, grids, supports, profiler)?;
        // Differences in pixels of the refinement resolution, as a share of the model's.
        let share = |side: usize, model: usize| side as f32 / model as f32 / model as f32;
        let scale = [
            share(size.width, MODEL_SIZE.width),
            share(size.height, MODEL_SIZE.height),
        ];
        let mut h = {
            let flops = self.input_correlation.flops(rows) + self.input_motion.flops(rows);
            let _layer = profiler.layer(
                "refine.input",
                Cost {
                    flops,
                    bytes: bytes(&correlation),
                },
            );
            let motion = motion_features(
                &state.positions,
                &state.occlusion,
                &state.expected_dist,
                scale,
            )?;
            let h = self.input_motion.forward(&motion, Activation::None, None)?;
            self.input_correlation
                .forward(&correlation, Activation::None, Some(&h))?
        };
        for layer in &self.layers {
            h = layer.forward(&h, self.heads, profiler)?;
        }
        let _layer = profiler.layer(
            "refine.output",
            Cost {
                flops: self.output.flops(rows),
                bytes: bytes(&h),
            },
        );
        let out = self
            .output
            .forward(&self.norm_out.forward(&h)?, Activation::None, None)?
            .to_dtype(DType::F32)?;
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

    /// `[n, frames, 768]`: the encoded correlations of all levels.
    fn correlate(
        &self,
        positions: &Tensor,
        grids: &Grids,
        supports: &[Tensor; 3],
        profiler: &Profiler,
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
            // 8×8 whole cells with 49 cells of the support, then both roles of the encoder.
            cost.flops += (n * frames) as u64 * (2 * 64 * 49 * c as u64 + 2 * encoder.flops());
            cost.bytes += bytes(support) + (n * frames * 64 * c * 4) as u64;
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
        let _layer = profiler.layer("refine.correlation", cost);
        correlate_and_encode(&levels, positions)
    }
}

impl Layer {
    /// A pre-norm transformer layer over the frames of each track. `h`: `[n, frames, c]`.
    fn forward(&self, h: &Tensor, heads: usize, profiler: &Profiler) -> Result<Tensor> {
        let (n, frames, c) = h.dims3()?;
        let rows = n * frames;
        let cost = |flops| Cost {
            flops,
            bytes: 2 * bytes(h),
        };
        let qkv = {
            let _layer = profiler.layer("refine.qkv", cost(self.qkv.flops(rows)));
            self.qkv
                .forward(&self.norm_1.forward(h)?, Activation::None, None)?
        };
        let mixed = {
            let _layer = profiler.layer(
                "refine.attention",
                cost((4 * n * frames * frames * c) as u64),
            );
            attention(
                &qkv,
                Attention {
                    heads,
                    slope_base: SLOPE_BASE,
                },
            )?
        };
        let h = {
            let _layer = profiler.layer("refine.project", cost(self.project.flops(rows)));
            self.project.forward(&mixed, Activation::None, Some(h))?
        };
        let _layer = profiler.layer(
            "refine.dense",
            cost(self.dense_0.flops(rows) + self.dense_2.flops(rows)),
        );
        let wide = self
            .dense_0
            .forward(&self.norm_2.forward(&h)?, Activation::Gelu, None)?;
        self.dense_2.forward(&wide, Activation::None, Some(&h))
    }
}

fn bytes(x: &Tensor) -> u64 {
    (x.elem_count() * x.dtype().size_in_bytes()) as u64
}
