//! Where queries meet grids: supports, the first estimate.

use candle_core::{Result, bail};

use super::buffer::Slice;
use super::ops::TrackState;
use super::product::small;
use super::tape::Written;
use super::{Element, Tape};

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SupportParams {
    grid: u64,
    queries: u64,
    support: u64,
    centre: u64,
    frames: i32,
    height: i32,
    width: i32,
    c: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SoftArgMaxParams {
    coarse: u64,
    fine: u64,
    own_frame: u64,
    own_position: u64,
    positions: u64,
    occlusion: u64,
    expected: u64,
    n: i32,
    frames: i32,
    first: i32,
    height: i32,
    width: i32,
    h_low: i32,
    w_low: i32,
    scale: [f32; 2],
    temperature: f32,
    radius: f32,
    head: HeadWeights,
}

/// The weights of the first estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct HeadWeights {
    /// `[2, 3, 3]`: taps over the coarse costs, then over the fine ones.
    pub conv: [f32; 18],
    /// Its bias.
    pub conv_bias: f32,
    /// `[2, 6]`: of mean, maximum and minimum, each of the coarse and then of the fine costs.
    pub occ: [f32; 12],
    /// Its bias.
    pub occ_bias: [f32; 2],
}

/// The first estimate of some frames from their costs.
#[derive(Debug, Clone, Copy)]
pub struct SoftArgMax {
    /// f32 `[frames of the chunk, n, h_low · w_low]`.
    pub coarse: Slice,
    /// Rows and columns of the coarse grid.
    pub coarse_size: [usize; 2],
    /// f32 `[frames of the chunk, n, height · width]`.
    pub fine: Slice,
    /// Rows and columns of the fine grid, at most 64 each.
    pub fine_size: [usize; 2],
    /// i32 `[n]`: the frame whose position the query gives.
    pub own_frame: Slice,
    /// f32 `[n, 2]`: that position, x and y in pixels at 256×256.
    pub own_position: Slice,
    /// Queries.
    pub n: usize,
    /// Frames of the tracks.
    pub frames: usize,
    /// Index of the chunk's first frame.
    pub first: usize,
    /// Frames of the chunk.
    pub count: usize,
    /// Pixels at 256×256 in a fine cell, along x and y.
    pub scale: [f32; 2],
    /// Sharpness of the softmax.
    pub temperature: f32,
    /// Reach of the mean around the largest value, in fine cells, at most 5.
    pub radius: f32,
    /// Weights.
    pub head: HeadWeights,
}

impl<C: Copy> Tape<C> {
    /// The 7×7 neighbourhood of each query: `[n, 49, c]`, and its middle `[n, c]`.
    ///
    /// `grid`: `[frames, height, width, c]`; `queries`: f32 `[n, 3]`, t and then y, x in cells.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn sample_support(
        &mut self,
        element: Element,
        grid: (Slice, [usize; 4]),
        (queries, n): (Slice, usize),
        support: Slice,
        centre: Option<Slice>,
    ) -> Result<()> {
        let (grid, [frames, height, width, c]) = grid;
        let size = element.size();
        let values = n * crate::SUPPORT * crate::SUPPORT * c;
        let params = SupportParams {
            grid: grid.room(frames * height * width * c, size)?,
            queries: queries.room(n * 3, 4)?,
            support: support.room(values, size)?,
            centre: centre.map_or(Ok(0), |s| s.room(n * c, size))?,
            frames: small(frames)?,
            height: small(height)?,
            width: small(width)?,
            c: small(c)?,
        };
        let result = Written { at: params.support, values, element };
        self.push(
            format!("sample_support_{}", element.memory()),
            [n, crate::SUPPORT, 1],
            128,
            0,
            &params,
            result,
        );
        Ok(())
    }

    /// The first estimate of positions and logits on some frames.
    ///
    /// # Errors
    /// Slices that are too short, or grids that are too large.
    pub fn soft_argmax(&mut self, op: &SoftArgMax, state: TrackState) -> Result<()> {
        let ([height, width], [h_low, w_low]) = (op.fine_size, op.coarse_size);
        if height > 64 || width > 64 {
            bail!("a cost volume of {height}×{width} cells is larger than 64×64")
        }
        let tracks = op.n * op.frames;
        let params = SoftArgMaxParams {
            coarse: op.coarse.room(op.count * op.n * h_low * w_low, 4)?,
            fine: op.fine.room(op.count * op.n * height * width, 4)?,
            own_frame: op.own_frame.room(op.n, 4)?,
            own_position: op.own_position.room(op.n * 2, 4)?,
            positions: state.positions.room(tracks * 2, 4)?,
            occlusion: state.occlusion.room(tracks, 4)?,
            expected: state.expected.room(tracks, 4)?,
            n: small(op.n)?,
            frames: small(op.frames)?,
            first: small(op.first)?,
            height: small(height)?,
            width: small(width)?,
            h_low: small(h_low)?,
            w_low: small(w_low)?,
            scale: op.scale,
            temperature: op.temperature,
            radius: op.radius,
            head: op.head,
        };
        let doubled = height == 2 * h_low && width == 2 * w_low && width.is_multiple_of(4);
        let shared = if doubled { 0 } else { h_low * w_low * 4 };
        let result = Written {
            at: params.positions,
            values: tracks * 2,
            element: Element::F32,
        };
        self.push(
            "soft_argmax".to_owned(),
            [op.n, op.count, 1],
            256,
            shared,
            &params,
            result,
        );
        Ok(())
    }
}
