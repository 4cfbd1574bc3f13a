//! The image encoder: a pre-activation ResNet whose grids at three strides are compared with queries.

use candle_core::{Result, Tensor};
use track_kernels::{Conv2d, instance_norm_relu, l2_normalize};
use track_profile::{Cost, Profiler};

use super::config::{BLOCKS, GROUPS};
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
    names: Names,
}

/// What the profiler calls the parts of a group's blocks.
#[derive(Debug, Clone, Copy)]
struct Names {
    norm: &'static str,
    conv: &'static str,
    shortcut: &'static str,
}

const NAMES: [Names; 4] = [
    Names {
        norm: "encoder.group0.norm",
        conv: "encoder.group0.conv3x3",
        shortcut: "encoder.group0.shortcut",
    },
    Names {
        norm: "encoder.group1.norm",
        conv: "encoder.group1.conv3x3",
        shortcut: "encoder.group1.shortcut",
    },
    Names {
        norm: "encoder.group2.norm",
        conv: "encoder.group2.conv3x3",
        shortcut: "encoder.group2.shortcut",
    },
    Names {
        norm: "encoder.group3.norm",
        conv: "encoder.group3.conv3x3",
        shortcut: "encoder.group3.shortcut",
    },
];

impl Encoder {
    pub(super) fn new(weights: &Weights) -> Result<Self> {
        let mut groups = Vec::new();
        for (g, (&(_, _, stride), names)) in GROUPS.iter().zip(NAMES).enumerate() {
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
    pub(super) fn forward(&self, frames: &Tensor, profiler: &Profiler) -> Result<Grids> {
        let mut x = profiled(profiler, "encoder.stem", &self.stem, frames, None)?;
        let mut outputs = Vec::new();
        for group in &self.groups {
            for block in group {
                x = block.forward(&x, profiler)?;
            }
            outputs.push(x.clone());
        }
        let unit = |i: usize| {
            let x: &Tensor = &outputs[i];
            let _layer = profiler.layer("encoder.normalize", elementwise(x, 3));
            l2_normalize(x)
        };
        Ok(Grids {
            highest: unit(0)?,
            hires: unit(1)?,
            lowres: unit(3)?,
        })
    }
}

impl Block {
    fn forward(&self, x: &Tensor, profiler: &Profiler) -> Result<Tensor> {
        let norm = |x: &Tensor, (weight, bias): &(Tensor, Tensor)| {
            let _layer = profiler.layer(self.names.norm, elementwise(x, 8));
            instance_norm_relu(x, weight, bias)
        };
        let y = norm(x, &self.norm_0)?;
        let shortcut = match &self.shortcut {
            Some(conv) => profiled(profiler, self.names.shortcut, conv, &y, None)?,
            None => x.clone(),
        };
        let y = profiled(profiler, self.names.conv, &self.conv_0, &y, None)?;
        let y = norm(&y, &self.norm_1)?;
        profiled(profiler, self.names.conv, &self.conv_1, &y, Some(&shortcut))
    }
}

/// A convolution under its layer's name.
fn profiled(
    profiler: &Profiler,
    name: &'static str,
    conv: &Conv2d,
    x: &Tensor,
    residual: Option<&Tensor>,
) -> Result<Tensor> {
    let (n, h, w, _) = x.dims4()?;
    let out = n * conv.output_size(h) * conv.output_size(w) * conv.c_out();
    let bytes =
        (x.elem_count() + out * if residual.is_some() { 2 } else { 1 }) * x.dtype().size_in_bytes();
    let _layer = profiler.layer(
        name,
        Cost {
            flops: conv.flops(n, h, w),
            bytes: bytes as u64,
        },
    );
    conv.forward(x, residual)
}

/// The cost of an operation that reads and writes every value once.
fn elementwise(x: &Tensor, flops_each: usize) -> Cost {
    let n = x.elem_count();
    Cost {
        flops: (flops_each * n) as u64,
        bytes: (2 * n * x.dtype().size_in_bytes()) as u64,
    }
}
