//! Pictures, norms and the ends of a refinement iteration, recorded on a tape.

use candle_core::Result;

use super::buffer::Slice;
use super::product::small;
use super::tape::Written;
use super::{Buffer, Element, Tape};

/// Values that a token's motion takes: two logits, 84 numbers of the motion, two zeros.
pub const MOTION_COLUMNS: usize = 88;

/// Where pictures come from.
#[derive(Debug, Clone, Copy)]
pub enum PictureSource {
    /// u8 `[n, height, width, 3]`.
    Bytes(Slice),
    /// f32 `[n, height, width, 3]`, 0 to 255.
    Floats(Slice),
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PictureParams {
    source: u64,
    out: u64,
    height: i32,
    width: i32,
    h: i32,
    w: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct L2Params {
    x: u64,
    y: u64,
    rows: i32,
    c: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LayerNormParams {
    x: u64,
    y: u64,
    weight: u64,
    bias: u64,
    rows: i32,
    c: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct GroupNormParams {
    x: u64,
    out: u64,
    weight: u64,
    bias: u64,
    in_stride: i64,
    out_stride: i64,
    rows: i32,
    pixels: i32,
    c: i32,
    affine_stride: i32,
    period: i32,
    ld: i32,
    column: i32,
    step: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct MotionParams {
    positions: u64,
    occlusion: u64,
    expected: u64,
    tokens: u64,
    frames: i32,
    rows: i32,
    ld: i32,
    col: i32,
    scale: [f32; 2],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct OutputParams {
    h: u64,
    norm_weight: u64,
    norm_bias: u64,
    weight: u64,
    bias: u64,
    positions: u64,
    occlusion: u64,
    expected: u64,
    tokens: i32,
    c: i32,
    scale: [f32; 2],
}

/// Weight and bias of a normalisation, f32.
#[derive(Debug)]
pub struct Affine {
    /// Factors.
    pub weight: Buffer,
    /// Summands.
    pub bias: Buffer,
}

/// Positions and logits of tracks, f32: `[n, frames, 2]`, `[n, frames]`, `[n, frames]`.
#[derive(Debug, Clone, Copy)]
pub struct TrackState {
    /// x, y in pixels at 256×256.
    pub positions: Slice,
    /// Logits of being occluded.
    pub occlusion: Slice,
    /// Logits of the position being far off.
    pub expected: Slice,
}

/// A group norm over 16 channels of whole pictures, with relu, in strict f32.
#[derive(Debug, Clone, Copy)]
pub struct GroupNorm<'a> {
    /// Weight and bias, `[batch, c]`.
    pub affine: (&'a Buffer, &'a Buffer),
    /// `[batch]` × `[rows, c]`.
    pub x: Slice,
    /// Values from one of the batch to the next.
    pub x_batch: usize,
    /// Entries of the batch.
    pub batch: usize,
    /// Rows: pictures × pixels.
    pub rows: usize,
    /// Consecutive rows that make a picture.
    pub pixels: usize,
    /// Channels.
    pub c: usize,
    /// Row r goes to row r mod `period`, `step` values further each time round.
    pub out: Slice,
    /// Values from one of the batch to the next.
    pub out_batch: usize,
    /// Values from one row of the result to the next.
    pub ld: usize,
    /// See `out`.
    pub period: usize,
    /// See `out`.
    pub step: usize,
}

impl<C: Copy> Tape<C> {
    /// Pictures resized, f32 `[n, h, w, 3]`, 0 to 255.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn resize(
        &mut self,
        source: Slice,
        n: usize,
        from: [usize; 2],
        to: [usize; 2],
        out: Slice,
    ) -> Result<()> {
        let name = "resize_u8_f32".to_owned();
        let result = (out, Element::F32, 3);
        self.picture(name, PictureSource::Bytes(source), n, from, to, result)
    }

    /// Pictures resized and scaled to −1..1: `[n, h, w, 4]`, the fourth channel zero.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn to_input(
        &mut self,
        element: Element,
        source: PictureSource,
        n: usize,
        from: [usize; 2],
        to: [usize; 2],
        out: Slice,
    ) -> Result<()> {
        let name = match source {
            PictureSource::Bytes(_) => "to_input",
            PictureSource::Floats(_) => "to_input_from_f32",
        };
        let name = format!("{name}_{}", element.memory());
        self.picture(name, source, n, from, to, (out, element, 4))
    }

    /// Either of the two, with the result's channels.
    fn picture(
        &mut self,
        kernel: String,
        source: PictureSource,
        n: usize,
        from: [usize; 2],
        to: [usize; 2],
        (out, element, channels): (Slice, Element, usize),
    ) -> Result<()> {
        let read = n * from[0] * from[1] * 3;
        let values = n * to[0] * to[1] * channels;
        let params = PictureParams {
            source: match source {
                PictureSource::Bytes(s) => s.room(read, 1)?,
                PictureSource::Floats(s) => s.room(read, 4)?,
            },
            out: out.room(values, element.size())?,
            height: small(from[0])?,
            width: small(from[1])?,
            h: small(to[0])?,
            w: small(to[1])?,
        };
        let result = Written {
            at: params.out,
            values,
            element,
        };
        let grid = [(to[0] * to[1]).div_ceil(256), n, 1];
        self.push(kernel, grid, 256, 0, &params, result);
        Ok(())
    }

    /// Each row divided by its Euclidean norm. `y` may be `x`.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn l2_normalize(
        &mut self,
        element: Element,
        x: Slice,
        rows: usize,
        c: usize,
        y: Slice,
    ) -> Result<()> {
        let size = element.size();
        let params = L2Params {
            x: x.room(rows * c, size)?,
            y: y.room(rows * c, size)?,
            rows: small(rows)?,
            c: small(c)?,
        };
        let lanes = (c * size / 16).min(32);
        let result = Written {
            at: params.y,
            values: rows * c,
            element,
        };
        let grid = [rows.div_ceil(256 / lanes), 1, 1];
        self.push(
            format!("l2_normalize_{}", element.memory()),
            grid,
            256,
            0,
            &params,
            result,
        );
        Ok(())
    }

    /// Each row normalised, with an affine. `y` may be `x`.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn layer_norm(
        &mut self,
        element: Element,
        x: Slice,
        (rows, c): (usize, usize),
        affine: &Affine,
        y: Slice,
    ) -> Result<()> {
        let params = LayerNormParams {
            x: x.room(rows * c, element.size())?,
            y: y.room(rows * c, element.size())?,
            weight: affine.weight.all().room(c, 4)?,
            bias: affine.bias.all().room(c, 4)?,
            rows: small(rows)?,
            c: small(c)?,
        };
        let result = Written {
            at: params.y,
            values: rows * c,
            element,
        };
        let grid = [rows.div_ceil(16), 1, 1];
        self.push(
            format!("layer_norm_{}", element.memory()),
            grid,
            256,
            0,
            &params,
            result,
        );
        Ok(())
    }

    /// A group norm with relu in strict f32.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn group_norm_relu(&mut self, op: &GroupNorm<'_>) -> Result<()> {
        let last = op.batch - 1;
        let far = (op.rows - 1) / op.period * op.step;
        let values = last * op.out_batch + (op.rows.min(op.period) - 1) * op.ld + far + op.c;
        let params = GroupNormParams {
            x: op.x.room(last * op.x_batch + op.rows * op.c, 4)?,
            out: op.out.room(values, 4)?,
            weight: op.affine.0.all().room(op.batch * op.c, 4)?,
            bias: op.affine.1.all().room(op.batch * op.c, 4)?,
            in_stride: op.x_batch as i64,
            out_stride: op.out_batch as i64,
            rows: small(op.rows)?,
            pixels: small(op.pixels)?,
            c: small(op.c)?,
            affine_stride: small(op.c)?,
            period: small(op.period)?,
            ld: small(op.ld)?,
            column: 0,
            step: small(op.step)?,
        };
        let result = Written {
            at: params.out,
            values,
            element: Element::F32,
        };
        let grid = [(op.rows / op.pixels * op.c / 4).div_ceil(256), op.batch, 1];
        self.push(
            "group_norm_relu_f32".to_owned(),
            grid,
            256,
            0,
            &params,
            result,
        );
        Ok(())
    }

    /// What tokens know of their state and motion: [`MOTION_COLUMNS`] values from column `col` of `[n·frames, ld]`.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn motion(
        &mut self,
        element: Element,
        state: TrackState,
        (n, frames): (usize, usize),
        (tokens, ld, col): (Slice, usize, usize),
        scale: [f32; 2],
    ) -> Result<()> {
        let rows = n * frames;
        let params = MotionParams {
            positions: state.positions.room(rows * 2, 4)?,
            occlusion: state.occlusion.room(rows, 4)?,
            expected: state.expected.room(rows, 4)?,
            tokens: tokens.room(rows * ld, element.size())?,
            frames: small(frames)?,
            rows: small(rows)?,
            ld: small(ld)?,
            col: small(col)?,
            scale,
        };
        let result = Written {
            at: params.tokens,
            values: rows * ld,
            element,
        };
        let grid = [(rows * (MOTION_COLUMNS / 8)).div_ceil(256), 1, 1];
        self.push(
            format!("motion_{}", element.memory()),
            grid,
            256,
            0,
            &params,
            result,
        );
        Ok(())
    }

    /// The last layer norm and the outputs that are used, added to the state.
    ///
    /// `weight`: f32 `[4, c]`, `bias`: `[4]`; `scale` takes the first two outputs to pixels at 256×256.
    ///
    /// # Errors
    /// Slices that are too short.
    #[allow(clippy::too_many_arguments)] // Each is a different thing.
    pub fn output(
        &mut self,
        element: Element,
        (h, tokens, c): (Slice, usize, usize),
        norm: &Affine,
        weight: &Buffer,
        bias: &Buffer,
        state: TrackState,
        scale: [f32; 2],
    ) -> Result<()> {
        let params = OutputParams {
            h: h.room(tokens * c, element.size())?,
            norm_weight: norm.weight.all().room(c, 4)?,
            norm_bias: norm.bias.all().room(c, 4)?,
            weight: weight.all().room(4 * c, 4)?,
            bias: bias.all().room(4, 4)?,
            positions: state.positions.room(tokens * 2, 4)?,
            occlusion: state.occlusion.room(tokens, 4)?,
            expected: state.expected.room(tokens, 4)?,
            tokens: small(tokens)?,
            c: small(c)?,
            scale,
        };
        let result = Written {
            at: params.positions,
            values: tokens * 2,
            element: Element::F32,
        };
        let grid = [tokens.div_ceil(16), 1, 1];
        self.push(
            format!("output_{}", element.memory()),
            grid,
            256,
            0,
            &params,
            result,
        );
        Ok(())
    }
}
