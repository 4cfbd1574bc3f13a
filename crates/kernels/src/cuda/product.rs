//! Convolutions and linear layers as one product.

use candle_core::{Result, bail};

use super::buffer::Slice;
use super::tape::Written;
use super::{Buffer, Element, PackedWeight, Tape, stream};

/// As `ProductParams` in product.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Params {
    pub(super) x: u64,
    pub(super) weight: u64,
    pub(super) bias: u64,
    pub(super) residual: u64,
    pub(super) norm_weight: u64,
    pub(super) norm_bias: u64,
    pub(super) out: u64,
    pub(super) x_batch: i64,
    pub(super) weight_batch: i64,
    pub(super) out_batch: i64,
    pub(super) rows: i32,
    pub(super) columns: i32,
    pub(super) depth: i32,
    pub(super) depth_padded: i32,
    pub(super) height: i32,
    pub(super) width: i32,
    pub(super) channels: i32,
    pub(super) ld_x: i32,
    pub(super) out_height: i32,
    pub(super) out_width: i32,
    pub(super) kernel_h: i32,
    pub(super) kernel_w: i32,
    pub(super) stride_y: i32,
    pub(super) stride_x: i32,
    pub(super) pad_y: i32,
    pub(super) pad_x: i32,
    pub(super) channel_block: i32,
    pub(super) ld_out: i32,
    pub(super) ld_residual: i32,
    pub(super) group_rows: i32,
    pub(super) gelu: i32,
    pub(super) out_f32: i32,
    pub(super) period: i32,
    pub(super) period_step: i32,
}

/// Rows of a block's tile.
pub(super) const TILE_ROWS: usize = 128;
/// Bytes of depth in a slice on Tensor Cores.
pub(super) const SLICE: usize = 128;
/// Values of depth in a slice in strict f32.
pub(super) const F32_DEPTH: usize = 16;

/// How a convolution's window moves over its input, `[frames, height, width, channels]`.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Rows and columns of the input.
    pub size: [usize; 2],
    /// Rows and columns of the output.
    pub out: [usize; 2],
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Steps down and to the right.
    pub stride: [usize; 2],
    /// Zeros above and to the left.
    pub pad: [usize; 2],
}

impl Window {
    /// A SAME convolution of a square kernel.
    pub fn same(height: usize, width: usize, kernel: usize, stride: usize) -> Self {
        let (out_h, pad_y) = crate::same_padding(height, kernel, stride);
        let (out_w, pad_x) = crate::same_padding(width, kernel, stride);
        Self {
            size: [height, width],
            out: [out_h, out_w],
            kernel: [kernel; 2],
            stride: [stride; 2],
            pad: [pad_y, pad_x],
        }
    }

    /// A linear layer: every row is its own picture of one pixel.
    pub const LINEAR: Self = Self {
        size: [1; 2],
        out: [1; 2],
        kernel: [1; 2],
        stride: [1; 2],
        pad: [0; 2],
    };
}

/// What a product reads and writes: addresses on the device, distances in values.
#[derive(Debug, Clone, Copy)]
pub struct ProductOp<'a> {
    /// The layer's weights.
    pub weight: &'a PackedWeight,
    /// The input, `[batch][frames, height, width, ld]`.
    pub x: Slice,
    /// Values from one pixel of the input to the next.
    pub ld_x: usize,
    /// Values from one of the batch to the next.
    pub x_batch: usize,
    /// Pictures of the input.
    pub frames: usize,
    /// How the window moves.
    pub window: Window,
    /// Added to the result: `[rows, ld]`.
    pub residual: Option<(Slice, usize)>,
    /// The result `[rows, ld]`, or the columns of a wider matrix that begin here.
    pub out: Slice,
    /// Values from one row of the result to the next.
    pub ld_out: usize,
    /// Values from one of the batch to the next.
    pub out_batch: usize,
    /// Rows × 16 columns that are normalised together (1, 4 or 16 rows; 0 for no norm), then relu. Not in strict
    /// f32, where it is a launch of its own.
    pub group_rows: usize,
    /// The exact GELU at the end.
    pub gelu: bool,
    /// Where not 0: row r goes to row r mod this, `period_step` values further each time round.
    pub period: usize,
    /// See `period`.
    pub period_step: usize,
}

impl<'a> ProductOp<'a> {
    /// A linear layer of `rows` vectors that lie `ld` values apart, its results side by side; what a convolution or an
    /// epilogue has on top is set on it.
    pub fn linear(
        weight: &'a PackedWeight,
        (x, ld): (Slice, usize),
        out: Slice,
        rows: usize,
    ) -> Self {
        Self {
            weight,
            x,
            ld_x: ld,
            x_batch: 0,
            frames: rows,
            window: Window::LINEAR,
            residual: None,
            out,
            ld_out: weight.columns,
            out_batch: 0,
            group_rows: 0,
            gelu: false,
            period: 0,
            period_step: 0,
        }
    }

    /// Rows of the product: pixels of the result.
    pub fn rows(&self) -> usize {
        self.frames * self.window.out[0] * self.window.out[1]
    }
}

impl<C: Copy> Tape<C> {
    /// Records a product.
    ///
    /// # Errors
    /// A kernel that differs from the weights' own, or sizes that the device code does not take.
    pub fn product(&mut self, op: &ProductOp<'_>) -> Result<()> {
        let w = op.weight;
        if w.kernel != op.window.kernel {
            bail!(
                "weights of a {:?} kernel meet a window of {:?}",
                w.kernel,
                op.window.kernel
            )
        }
        if op.group_rows > 0 && w.element == Element::F32 {
            bail!("in strict f32 a group norm is a launch of its own")
        }
        let rows = op.rows();
        if rows == 0 {
            return Ok(());
        }
        let size = w.element.size();
        let batches = w.batch - 1;
        let pixels = op.frames * op.window.size[0] * op.window.size[1];
        let read = batches * op.x_batch + (pixels - 1) * op.ld_x + w.channels;
        let (last_row, last_column) = match op.period {
            0 => (rows - 1, 0),
            period => (rows.min(period) - 1, (rows - 1) / period * op.period_step),
        };
        let written = batches * op.out_batch + last_row * op.ld_out + last_column + w.columns;
        let vector = |b: Option<&Buffer>| match b {
            Some(b) => b.all().room(w.batch * w.columns, 4),
            None => Ok(0),
        };
        let out = op.out.room(written, size)?;
        let params = Params {
            x: op.x.room(read, size)?,
            weight: w
                .weight
                .all()
                .room(w.batch * w.columns * w.depth_padded, size)?,
            bias: vector(w.bias.as_ref())?,
            residual: match op.residual {
                Some((r, ld)) => r.room((rows - 1) * ld + w.columns, size)?,
                None => 0,
            },
            norm_weight: vector(w.norm.as_ref().map(|n| &n.0))?,
            norm_bias: vector(w.norm.as_ref().map(|n| &n.1))?,
            out,
            x_batch: op.x_batch as i64,
            weight_batch: (w.columns * w.depth_padded) as i64,
            out_batch: op.out_batch as i64,
            rows: small(rows)?,
            columns: small(w.columns)?,
            depth: small(w.kernel[0] * w.kernel[1] * w.channels)?,
            depth_padded: small(w.depth_padded)?,
            height: small(op.window.size[0])?,
            width: small(op.window.size[1])?,
            channels: small(w.channels)?,
            ld_x: small(op.ld_x)?,
            out_height: small(op.window.out[0])?,
            out_width: small(op.window.out[1])?,
            kernel_h: small(w.kernel[0])?,
            kernel_w: small(w.kernel[1])?,
            stride_y: small(op.window.stride[0])?,
            stride_x: small(op.window.stride[1])?,
            pad_y: small(op.window.pad[0])?,
            pad_x: small(op.window.pad[1])?,
            channel_block: small(w.block)?,
            ld_out: small(op.ld_out)?,
            ld_residual: small(op.residual.map_or(0, |r| r.1))?,
            group_rows: small(op.group_rows)?,
            gelu: op.gelu.into(),
            out_f32: 0,
            period: small(op.period)?,
            period_step: small(op.period_step)?,
        };
        let written = Written {
            at: out,
            values: written,
            element: w.element,
        };
        if w.streamed_depth > 0
            && let Some(tile) = stream::tile(&op.window)
        {
            let weight = w.streamed.as_ref().unwrap_or(&w.weight);
            let operands = stream::Operands {
                element: w.element,
                weight: weight
                    .all()
                    .room(w.batch * w.columns * w.streamed_depth, size)?,
                depth: w.streamed_depth,
                weight_batch: w.columns * w.streamed_depth,
                batch: w.batch,
                window: op.window,
                frames: op.frames,
                tile,
            };
            return self.stream(&params, &operands, written);
        }
        self.push_product(w.element, &params, w.batch, written)
    }

    /// Records products of vectors with every cell of a grid, in f32: `out[frame][vector][cell]`.
    ///
    /// `vectors`: `[n, c]`; `grid`: `[frames, cells, c]`; cells in multiples of 64, c of 64.
    ///
    /// # Errors
    /// Sizes that are not such multiples.
    pub fn cost_volume(
        &mut self,
        element: Element,
        (vectors, n): (Slice, usize),
        (grid, frames, cells, c): (Slice, usize, usize, usize),
        out: Slice,
    ) -> Result<()> {
        if !cells.is_multiple_of(64) || !c.is_multiple_of(64) {
            bail!("a grid of {cells} cells and {c} channels does not come in 64s")
        }
        let out = out.room(frames * n * cells, 4)?;
        // Every vector is a row of its own, every cell an output: a linear layer whose weights are the grid.
        let params = Params {
            x: vectors.room(n * c, element.size())?,
            weight: grid.room(frames * cells * c, element.size())?,
            out,
            weight_batch: (cells * c) as i64,
            out_batch: (n * cells) as i64,
            rows: small(n)?,
            columns: small(cells)?,
            depth: small(c)?,
            depth_padded: small(c)?,
            height: 1,
            width: 1,
            channels: small(c)?,
            ld_x: small(c)?,
            out_height: 1,
            out_width: 1,
            kernel_h: 1,
            kernel_w: 1,
            stride_y: 1,
            stride_x: 1,
            channel_block: small(c)?,
            ld_out: small(cells)?,
            out_f32: 1,
            ..Params::default()
        };
        let written = Written {
            at: out,
            values: frames * n * cells,
            element: Element::F32,
        };
        if stream::available(self.gpu().info(), element) {
            let operands = stream::Operands {
                element,
                weight: params.weight,
                depth: c,
                weight_batch: cells * c,
                batch: frames,
                window: Window::LINEAR,
                frames: n,
                tile: [1, 1, TILE_ROWS],
            };
            return self.stream(&params, &operands, written);
        }
        self.push_product(element, &params, frames, written)
    }

    fn push_product(
        &mut self,
        element: Element,
        params: &Params,
        batch: usize,
        written: Written,
    ) -> Result<()> {
        let columns = params.columns as usize;
        let tile = if columns.is_multiple_of(128) { 128 } else { 64 };
        let blocks = (params.rows as usize).div_ceil(TILE_ROWS) * (columns / tile);
        let shared = match element {
            Element::F32 => 2 * F32_DEPTH * (TILE_ROWS + 4 + tile + 4) * 4,
            // What the epilogue stages fits in the slices' room: two stages hold more than a padded tile.
            _ => self.gpu().info().product_stages() * (TILE_ROWS + tile) * SLICE,
        };
        let kernel = format!("product_{tile}_{}", element.product());
        self.push(kernel, [blocks, 1, batch], 256, shared, params, written);
        Ok(())
    }
}

/// A size as the device code takes it.
pub(crate) fn small(n: usize) -> Result<i32> {
    match i32::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => bail!("{n} values in a row or column are more than the device code counts"),
    }
}
