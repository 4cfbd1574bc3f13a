//! The image encoder: a pre-activation ResNet whose grids at three strides are compared with queries.

use candle_core::Tensor;
use track_kernels::{Conv2d, instance_norm_relu, l2_normalize};

use super::config::{BLOCKS, GROUPS};
use super::cost::{self, name};
use super::layers::Layers;
use crate::Result;
use crate::weights::Weights;

/// Features of some frames, each cell of unit length: `[frames, height, width, c]`.
#[derive(Debug, Clone)]
pub(crate) struct Grids {
    /// Stride 4, 128 channels.
    pub(crate) hires: Tensor,
    /// Stride 8, 256 channels.
    pub(crate) lowres: Tensor,
    /// Stride 2, 64 channels.
    pub(crate) highest: Tensor,
}

impl Grids {
    /// In the order in which the refinement reads them.
    pub(crate) fn levels(&self) -> [&Tensor; 3] {
        [&self.hires, &self.lowres, &self.highest]
    }
}

#[derive(Debug)]
pub(super) struct Encoder {
    stem: Conv2d,
    groups: Vec<Vec<Block>>,
}

#[derive(Debug)]
struct Block {
    norm_0: (Tensor, Tensor),
    conv_0: Conv2d,
    norm_1: (Tensor, Tensor),
    conv_1: Conv2d,
    /// In the first block of a group.
    shortcut: Option<Conv2d>,
    /// What the profiler calls its norms, its shortcut and its 3×3 convolutions.
    names: (&'static str, &'static str, &'static str),
}

impl Encoder {
    pub(super) fn new(weights: &Weights) -> Result<Self> {
        let mut groups = Vec::new();
        for (g, (&(_, _, stride), names)) in GROUPS.iter().zip(name::GROUPS).enumerate() {
            let mut blocks = Vec::new();
            for b in 0..BLOCKS {
                let name = format!("resnet_torch.block_groups.{g}.blocks.{b}");
                let stride = if b == 0 { stride } else { 1 };
                let conv = |part: &str, stride| {
                    Conv2d::new(weights.get(&format!("{name}.{part}.weight"))?, stride)
                };
                blocks.push(Block {
                    norm_0: weights.pair(&format!("{name}.bn_0"))?,
                    conv_0: conv("conv_0", stride)?,
                    norm_1: weights.pair(&format!("{name}.bn_1"))?,
                    conv_1: conv("conv_1", 1)?,
                    shortcut: if b == 0 {
                        Some(conv("proj_conv", stride)?)
                    } else {
                        None
                    },
                    names,
                });
            }
            groups.push(blocks);
        }
        Ok(Self {
            stem: Conv2d::new(weights.get("resnet_torch.initial_conv.weight")?, 2)?,
            groups,
        })
    }

    /// `frames`: f32 `[n, height, width, 3]` in −1..1.
    pub(super) fn forward(&self, frames: &Tensor, layers: &Layers<'_>) -> Result<Grids> {
        let mut x = convolve(layers, name::STEM, (&self.stem, 7), frames, None)?;
        let mut outputs = Vec::new();
        for group in &self.groups {
            for block in group {
                x = block.forward(&x, layers)?;
            }
            outputs.push(x.clone());
        }
        let unit = |i: usize| {
            let x: &Tensor = &outputs[i];
            let cost = cost::normalize(x.elem_count());
            layers.run(name::NORMALIZE, cost, || l2_normalize(x))
        };
        Ok(Grids {
            highest: unit(0)?,
            hires: unit(1)?,
            lowres: unit(3)?,
        })
    }
}

impl Block {
    fn forward(&self, x: &Tensor, layers: &Layers<'_>) -> Result<Tensor> {
        let (norm_name, shortcut_name, conv_name) = self.names;
        let norm = |x: &Tensor, (weight, bias): &(Tensor, Tensor)| {
            let cost = cost::norm(x.elem_count(), weight.elem_count());
            layers.run(norm_name, cost, || instance_norm_relu(x, weight, bias))
        };
        let y = norm(x, &self.norm_0)?;
        let shortcut = match &self.shortcut {
            Some(conv) => convolve(layers, shortcut_name, (conv, 1), &y, None)?,
            None => x.clone(),
        };
        let y = convolve(layers, conv_name, (&self.conv_0, 3), &y, None)?;
        let y = norm(&y, &self.norm_1)?;
        convolve(layers, conv_name, (&self.conv_1, 3), &y, Some(&shortcut))
    }
}

/// A convolution, with the side of its kernel, under its layer's name.
fn convolve(
    layers: &Layers<'_>,
    name: &'static str,
    (conv, kernel): (&Conv2d, usize),
    x: &Tensor,
    residual: Option<&Tensor>,
) -> Result<Tensor> {
    let (n, h, w, c_in) = x.dims4()?;
    let outputs = n * conv.output_size(h) * conv.output_size(w);
    let mut cost = cost::conv(x.elem_count(), outputs, c_in, conv.c_out(), kernel);
    if residual.is_some() {
        cost += cost::residual(outputs * conv.c_out());
    }
    layers.run(name, cost, || conv.forward(x, residual))
}
