//! The weights as the device code reads them.

use candle_core::{DType, Device, Result, Tensor};
use track_kernels::cuda::{
    Affine, Buffer, CORRELATION_CHANNELS, Element, Gpu, HeadWeights, MOTION_COLUMNS, PackedWeight,
};

use super::super::config::{BLOCKS, Config, GROUPS, LAYERS, USED_OUTPUTS};
use crate::weights::Weights;

/// A block of the image encoder.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) norm_0: Affine,
    pub(super) conv_0: PackedWeight,
    pub(super) norm_1: Affine,
    pub(super) conv_1: PackedWeight,
    /// In the first block of a group.
    pub(super) shortcut: Option<PackedWeight>,
    /// Of the block's first convolution and its shortcut.
    pub(super) stride: usize,
    pub(super) c_in: usize,
    pub(super) c_out: usize,
}

/// A layer of the transformer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) norm_1: Affine,
    pub(super) qkv: PackedWeight,
    pub(super) project: PackedWeight,
    pub(super) norm_2: Affine,
    pub(super) dense_0: PackedWeight,
    pub(super) dense_2: PackedWeight,
}

/// All of LocoTrack's weights on a device.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) element: Element,
    pub(super) config: Config,
    pub(super) stem: PackedWeight,
    pub(super) groups: Vec<Vec<Block>>,
    pub(super) head: HeadWeights,
    /// The correlation encoder's layers, each for all three levels.
    pub(super) correlation: Vec<PackedWeight>,
    pub(super) input: PackedWeight,
    pub(super) layers: Vec<Layer>,
    pub(super) norm_out: Affine,
    pub(super) output: (Buffer, Buffer),
}

impl Network {
    pub(super) fn new(
        config: Config,
        weights: &Weights,
        gpu: &Gpu,
        element: Element,
    ) -> Result<Self> {
        let affine = |name: &str| -> Result<Affine> {
            let (weight, bias) = weights.pair(name)?;
            Ok(Affine {
                weight: Buffer::of_tensor(gpu, Element::F32, &weight)?,
                bias: Buffer::of_tensor(gpu, Element::F32, &bias)?,
            })
        };
        let conv = |name: &str| -> Result<PackedWeight> {
            let weight = channels_last(weights.get(&format!("{name}.weight"))?)?;
            PackedWeight::new(gpu, element, &[weight], &[], &[])
        };
        let linear = |name: &str| -> Result<PackedWeight> {
            let (weight, bias) = weights.pair(name)?;
            PackedWeight::linear(gpu, element, &weight, Some(&bias))
        };
        let mut groups = Vec::new();
        for (g, &(group_in, c_out, stride)) in GROUPS.iter().enumerate() {
            let mut blocks = Vec::new();
            for b in 0..BLOCKS {
                let name = format!("resnet_torch.block_groups.{g}.blocks.{b}");
                blocks.push(Block {
                    norm_0: affine(&format!("{name}.bn_0"))?,
                    conv_0: conv(&format!("{name}.conv_0"))?,
                    norm_1: affine(&format!("{name}.bn_1"))?,
                    conv_1: conv(&format!("{name}.conv_1"))?,
                    shortcut: match b {
                        0 => Some(conv(&format!("{name}.proj_conv"))?),
                        _ => None,
                    },
                    stride: if b == 0 { stride } else { 1 },
                    c_in: if b == 0 { group_in } else { c_out },
                    c_out,
                });
            }
            groups.push(blocks);
        }
        let mut layers = Vec::new();
        for i in 0..LAYERS {
            let name = format!("torch_pips_mixer.transformer.layers.{i}");
            let (qkv, qkv_bias) = weights.joined(
                &["query_proj", "key_proj", "value_proj"].map(|part| format!("{name}.attn.{part}")),
            )?;
            layers.push(Layer {
                norm_1: affine(&format!("{name}.layer_norm1"))?,
                qkv: PackedWeight::linear(gpu, element, &qkv, Some(&qkv_bias))?,
                project: linear(&format!("{name}.attn.final_proj"))?,
                norm_2: affine(&format!("{name}.layer_norm2"))?,
                dense_0: linear(&format!("{name}.dense.0"))?,
                dense_2: linear(&format!("{name}.dense.2"))?,
            });
        }
        // The other 384 outputs feed nothing.
        let (output, output_bias) = weights.pair("torch_pips_mixer.output_proj")?;
        Ok(Self {
            element,
            stem: PackedWeight::new(
                gpu,
                element,
                &[stem(weights.get("resnet_torch.initial_conv.weight")?)?],
                &[],
                &[],
            )?,
            groups,
            head: head(weights)?,
            correlation: correlation(&config, weights, gpu, element)?,
            input: input(&config, weights, gpu, element)?,
            layers,
            norm_out: affine("torch_pips_mixer.transformer.ln_out")?,
            output: (
                Buffer::of_tensor(gpu, Element::F32, &output.narrow(0, 0, USED_OUTPUTS)?)?,
                Buffer::of_tensor(gpu, Element::F32, &output_bias.narrow(0, 0, USED_OUTPUTS)?)?,
            ),
            config,
        })
    }

    /// Bytes of all weights on the device, near enough.
    pub(super) fn bytes(&self) -> u64 {
        let values: usize = self
            .config
            .tensors()
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum();
        (values * self.element.size()) as u64
    }

    /// Columns of the token matrix: the encoded correlations, then state and motion.
    pub(super) fn token(&self) -> usize {
        self.read() + MOTION_COLUMNS
    }

    /// Columns of the encoded correlations.
    pub(super) fn read(&self) -> usize {
        3 * 2 * self.config.correlation_outputs()
    }
}

/// `[c_out, c_in, h, w]` to `[c_out, h, w, c_in]`.
fn channels_last(weight: &Tensor) -> Result<Tensor> {
    weight.permute((0, 2, 3, 1))?.contiguous()
}

/// The stem reads pixels in pairs of four channels, so that one piece of memory is one tap: of the 7 columns make 8,
/// of the 3 channels 4.
fn stem(weight: &Tensor) -> Result<Tensor> {
    let weight = channels_last(weight)?
        .pad_with_zeros(3, 0, 1)?
        .pad_with_zeros(2, 0, 1)?;
    let (c_out, rows, columns, c) = weight.dims4()?;
    weight.reshape((c_out, rows, columns / 2, 2 * c))
}

fn head(weights: &Weights) -> Result<HeadWeights> {
    let array = |name: &str| -> Result<Vec<f32>> {
        weights
            .get(name)?
            .to_dtype(DType::F32)?
            .flatten_all()?
            .to_vec1()
    };
    let mut head = HeadWeights {
        conv: [0.0; 18],
        conv_bias: 0.0,
        occ: [0.0; 12],
        occ_bias: [0.0; 2],
    };
    // Shapes were checked against the model's list of tensors.
    head.conv.copy_from_slice(&array("cost_conv.weight")?);
    head.conv_bias = array("cost_conv.bias")?.first().copied().unwrap_or(0.0);
    head.occ.copy_from_slice(&array("occ_linear.weight")?);
    head.occ_bias.copy_from_slice(&array("occ_linear.bias")?);
    Ok(head)
}

fn correlation(
    config: &Config,
    weights: &Weights,
    gpu: &Gpu,
    element: Element,
) -> Result<Vec<PackedWeight>> {
    let mut layers = Vec::new();
    for k in 0..config.correlation.len() {
        let (mut convs, mut biases, mut norms) = (Vec::new(), Vec::new(), Vec::new());
        for level in 0..3 {
            let (weight, bias) = weights.pair(&format!("cmdtop.{level}.conv.{k}.0"))?;
            let mut weight = channels_last(&weight)?;
            if k == 0 {
                let channels = weight.dim(3)?;
                weight = weight.pad_with_zeros(3, 0, CORRELATION_CHANNELS - channels)?;
            }
            convs.push(weight);
            biases.push(bias);
            norms.push(weights.pair(&format!("cmdtop.{level}.conv.{k}.1"))?);
        }
        layers.push(PackedWeight::new(gpu, element, &convs, &biases, &norms)?);
    }
    Ok(layers)
}

/// A token is [occlusion, expected distance, correlation, motion] in the checkpoint; in memory the correlation comes
/// first, where its columns are aligned.
fn input(config: &Config, weights: &Weights, gpu: &Gpu, element: Element) -> Result<PackedWeight> {
    let (weight, bias) = weights.pair("torch_pips_mixer.input_proj")?;
    let read = 3 * 2 * config.correlation_outputs();
    let inputs = weight.dim(1)?;
    let spare = read + MOTION_COLUMNS - inputs;
    let weight = Tensor::cat(
        &[
            weight.narrow(1, 2, read)?,
            weight.narrow(1, 0, 2)?,
            weight.narrow(1, 2 + read, inputs - 2 - read)?,
            Tensor::zeros((weight.dim(0)?, spare), weight.dtype(), &Device::Cpu)?,
        ],
        1,
    )?;
    PackedWeight::linear(gpu, element, &weight, Some(&bias))
}
