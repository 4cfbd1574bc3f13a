//! What is fixed about LocoTrack, and the tensors that a checkpoint of it holds.

use crate::{ModelKind, Size};

/// The resolution of the first estimate, and of clips that are not larger.
pub(super) const MODEL_SIZE: Size = Size {
    width: 256,
    height: 256,
};
/// What the grids are called, in the order in which the refinement reads them.
pub(super) const LEVEL_NAMES: [&str; 3] = ["hires", "lowres", "highest"];
/// Refinements of every track.
pub(super) const ITERATIONS: usize = 4;
/// Transformer layers.
pub(super) const LAYERS: usize = 3;
/// Channels of an attention head.
pub(super) const HEAD: usize = 64;
/// Base of the attention's slopes.
pub(super) const SLOPE_BASE: f32 = 24.0;
/// Sharpness of the cost volume's softmax.
pub(super) const TEMPERATURE: f32 = 20.0;
/// Radius of the soft arg-max, in cells of the finer grid.
pub(super) const ARG_MAX_RADIUS: f32 = 5.0;
/// Outputs of the last layer that are used: dx, dy, occlusion, expected distance.
pub(super) const USED_OUTPUTS: usize = 4;
/// Channels in and out of the encoder's four groups, and the stride of each group's first convolution.
pub(super) const GROUPS: [(usize, usize, usize); 4] =
    [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 256, 1)];
/// Blocks of a group.
pub(super) const BLOCKS: usize = 2;
/// A frame's sides are halved by the stem and each strided group: refinement sizes are multiples of this.
pub(super) const STRIDE: usize = 8;

/// What differs between the two published models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) kind: ModelKind,
    /// Channels of the transformer.
    pub(crate) dim: usize,
    /// Layers of the correlation encoder: channels in and out, kernel, stride.
    pub(crate) correlation: &'static [(usize, usize, usize, usize)],
}

const SMALL: Config = Config {
    kind: ModelKind::LocoTrackSmall,
    dim: 256,
    correlation: &[(49, 64, 5, 4), (64, 128, 2, 2)],
};
const BASE: Config = Config {
    kind: ModelKind::LocoTrackBase,
    dim: 384,
    correlation: &[(49, 64, 3, 2), (64, 128, 3, 2), (128, 128, 2, 2)],
};

impl Config {
    /// The configuration of a kind.
    pub(crate) fn of(kind: ModelKind) -> Self {
        match kind {
            ModelKind::LocoTrackSmall => SMALL,
            ModelKind::LocoTrackBase => BASE,
        }
    }

    /// Inputs of a token: two logits, two encodings of 128 values at each of three levels, and the motion.
    pub(crate) fn token(&self) -> usize {
        3 * 2 * self.correlation_outputs() + track_kernels::MOTION_FEATURES
    }

    /// Values of one correlation encoding.
    pub(crate) fn correlation_outputs(&self) -> usize {
        self.correlation.last().map_or(0, |layer| layer.1)
    }

    /// Every tensor of a checkpoint: published name (without the `model.` prefix) and shape.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut all: Vec<(String, Vec<usize>)> = vec![
            ("resnet_torch.initial_conv.weight".into(), vec![64, 3, 7, 7]),
            ("cost_conv.weight".into(), vec![1, 2, 3, 3]),
            ("cost_conv.bias".into(), vec![1]),
            ("occ_linear.weight".into(), vec![2, 6]),
            ("occ_linear.bias".into(), vec![2]),
        ];
        for (g, (group_in, c_out, _)) in GROUPS.into_iter().enumerate() {
            for b in 0..BLOCKS {
                let c_in = if b == 0 { group_in } else { c_out };
                let name = format!("resnet_torch.block_groups.{g}.blocks.{b}");
                if b == 0 {
                    all.push((format!("{name}.proj_conv.weight"), vec![c_out, c_in, 1, 1]));
                }
                all.push((format!("{name}.conv_0.weight"), vec![c_out, c_in, 3, 3]));
                all.push((format!("{name}.conv_1.weight"), vec![c_out, c_out, 3, 3]));
                for (norm, c) in [("bn_0", c_in), ("bn_1", c_out)] {
                    all.push((format!("{name}.{norm}.weight"), vec![c]));
                    all.push((format!("{name}.{norm}.bias"), vec![c]));
                }
            }
        }
        for level in 0..3 {
            for (k, &(c_in, c_out, kernel, _)) in self.correlation.iter().enumerate() {
                let name = format!("cmdtop.{level}.conv.{k}");
                all.push((
                    format!("{name}.0.weight"),
                    vec![c_out, c_in, kernel, kernel],
                ));
                for part in ["0.bias", "1.weight", "1.bias"] {
                    all.push((format!("{name}.{part}"), vec![c_out]));
                }
            }
        }
        let d = self.dim;
        let mut linear = |name: String, inputs: usize, outputs: usize| {
            all.push((format!("{name}.weight"), vec![outputs, inputs]));
            all.push((format!("{name}.bias"), vec![outputs]));
        };
        linear("torch_pips_mixer.input_proj".into(), self.token(), d);
        linear("torch_pips_mixer.output_proj".into(), d, 388);
        for i in 0..LAYERS {
            let name = format!("torch_pips_mixer.transformer.layers.{i}");
            for part in ["query_proj", "key_proj", "value_proj", "final_proj"] {
                linear(format!("{name}.attn.{part}"), d, d);
            }
            linear(format!("{name}.dense.0"), d, 4 * d);
            linear(format!("{name}.dense.2"), 4 * d, d);
        }
        let mut norm = |name: String| {
            all.push((format!("{name}.weight"), vec![d]));
            all.push((format!("{name}.bias"), vec![d]));
        };
        for i in 0..LAYERS {
            norm(format!(
                "torch_pips_mixer.transformer.layers.{i}.layer_norm1"
            ));
            norm(format!(
                "torch_pips_mixer.transformer.layers.{i}.layer_norm2"
            ));
        }
        norm("torch_pips_mixer.transformer.ln_out".into());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_checkpoints_have_these_sizes() {
        for (kind, tensors, values) in [
            (ModelKind::LocoTrackSmall, 135, 8_236_133),
            (ModelKind::LocoTrackBase, 147, 11_519_717),
        ] {
            let all = Config::of(kind).tensors();
            assert_eq!(all.len(), tensors);
            assert_eq!(
                all.iter()
                    .map(|(_, shape)| shape.iter().product::<usize>())
                    .sum::<usize>(),
                values
            );
        }
        assert_eq!(SMALL.token(), 854);
    }
}
