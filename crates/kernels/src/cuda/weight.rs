//! Weights of products, laid out once as the device code reads them.

use candle_core::{Result, Tensor, bail};

use super::product::{F32_DEPTH, SLICE};
use super::{Buffer, Element, Gpu, stream};

/// Weights of one or more products of one shape, laid out for the device.
#[derive(Debug)]
pub struct PackedWeight {
    pub(super) weight: Buffer,
    pub(super) bias: Option<Buffer>,
    /// Affine of a group norm that follows.
    pub(super) norm: Option<(Buffer, Buffer)>,
    pub(super) element: Element,
    pub(super) batch: usize,
    pub(super) columns: usize,
    pub(super) channels: usize,
    pub(super) kernel: [usize; 2],
    pub(super) block: usize,
    pub(super) depth_padded: usize,
    /// The same for the copy engine, whose taps begin with whole slices, where that differs.
    pub(super) streamed: Option<Buffer>,
    /// Depth of the weights for the copy engine; 0 where the device has none or it does not pay.
    pub(super) streamed_depth: usize,
}

impl PackedWeight {
    /// Takes weights `[columns, kernel_h, kernel_w, channels]`, one tensor for each of the batch; biases and group
    /// norms `[columns]` likewise, or none. Channels must be a multiple of 8, columns one of 64.
    ///
    /// # Errors
    /// Shapes that differ or are not such multiples, or no memory.
    pub fn new(
        gpu: &Gpu,
        element: Element,
        weights: &[Tensor],
        biases: &[Tensor],
        norms: &[(Tensor, Tensor)],
    ) -> Result<Self> {
        let Some(first) = weights.first() else {
            bail!("a product needs weights")
        };
        let (columns, kernel_h, kernel_w, channels) = first.dims4()?;
        if !channels.is_multiple_of(8) || !columns.is_multiple_of(64) {
            bail!(
                "weights {:?} do not suit the device: channels come in eights, outputs in 64s",
                first.shape()
            )
        }
        gpu.check(element)?;
        let whole = SLICE / element.size();
        let slice = match element {
            Element::F32 => F32_DEPTH,
            _ => whole,
        };
        // Neighbouring taps read almost the same values: with few channels at a time they are still at hand.
        let block = if channels % whole == 0 {
            whole
        } else {
            channels
        };
        let packed = pack(weights, block, block, slice)?;
        let depth_padded = packed.len() / (weights.len() * columns);
        // Where a tap has fewer channels than half a slice, most of what is streamed would be padding.
        let streams = stream::available(gpu.info(), element) && 2 * channels > whole;
        let taps = kernel_h * kernel_w;
        let streamed = (streams && channels % whole != 0)
            .then(|| Buffer::of(gpu, element, &pack(weights, whole, whole, whole)?))
            .transpose()?;
        let streamed_depth = if streams {
            taps * channels.next_multiple_of(whole)
        } else {
            0
        };
        let vector = |tensors: Vec<&Tensor>| -> Result<Option<Buffer>> {
            if tensors.is_empty() {
                return Ok(None);
            }
            let mut values = Vec::with_capacity(tensors.len() * columns);
            for t in tensors {
                if t.elem_count() != columns {
                    bail!("{columns} outputs have a vector of {:?}", t.shape())
                }
                values.extend(
                    t.to_dtype(candle_core::DType::F32)?
                        .flatten_all()?
                        .to_vec1::<f32>()?,
                );
            }
            Buffer::of(gpu, Element::F32, &values).map(Some)
        };
        let norm_weight = vector(norms.iter().map(|n| &n.0).collect())?;
        let norm_bias = vector(norms.iter().map(|n| &n.1).collect())?;
        Ok(Self {
            weight: Buffer::of(gpu, element, &packed)?,
            bias: vector(biases.iter().collect())?,
            norm: norm_weight.zip(norm_bias),
            element,
            batch: weights.len(),
            columns,
            channels,
            kernel: [kernel_h, kernel_w],
            block,
            depth_padded,
            streamed,
            streamed_depth,
        })
    }

    /// Weights `[columns, channels]` of a linear layer.
    ///
    /// # Errors
    /// As [`PackedWeight::new`].
    pub fn linear(
        gpu: &Gpu,
        element: Element,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Self> {
        let (columns, channels) = weight.dims2()?;
        let weight = weight.reshape((columns, 1, 1, channels))?;
        let biases: Vec<_> = bias.into_iter().cloned().collect();
        Self::new(gpu, element, &[weight], &biases, &[])
    }

    /// Outputs of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The affine of the group norm that follows, weight and bias.
    pub fn norm(&self) -> Option<(&Buffer, &Buffer)> {
        self.norm.as_ref().map(|(w, b)| (w, b))
    }
}

/// `[columns, kernel_h, kernel_w, channels]` of each of the batch as rows of depth (ky, block of channels, kx, channel
/// in block), blocks padded with zeros to `room` values, rows to a multiple of `slice`.
fn pack(weights: &[Tensor], block: usize, room: usize, slice: usize) -> Result<Vec<f32>> {
    let mut packed = Vec::new();
    for w in weights {
        let (columns, kernel_h, kernel_w, channels) = w.dims4()?;
        if w.dims() != weights[0].dims() {
            bail!("weights of one product differ: {:?}", w.shape())
        }
        let values = w
            .to_dtype(candle_core::DType::F32)?
            .flatten_all()?
            .to_vec1::<f32>()?;
        for row in values.chunks_exact(kernel_h * kernel_w * channels) {
            let begun = packed.len();
            for ky in 0..kernel_h {
                for first in (0..channels).step_by(block) {
                    let count = block.min(channels - first);
                    for kx in 0..kernel_w {
                        let from = (ky * kernel_w + kx) * channels + first;
                        packed.extend_from_slice(&row[from..from + count]);
                        packed.resize(packed.len() + room - count, 0.0);
                    }
                }
            }
            let depth = packed.len() - begun;
            packed.resize(begun + depth.next_multiple_of(slice), 0.0);
        }
        debug_assert_eq!(packed.len() % columns, 0);
    }
    Ok(packed)
}
