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

/// Channels of a correlation in memory: 49, padded with zeros to a multiple of 8.
pub const CORRELATION_CHANNELS: usize = 56;
/// Frames that a block of the correlation takes.
const FRAMES_PER_BLOCK: usize = 16;
/// Shared memory of a block of the correlation.
const CORRELATE_SHARED: usize = 61440;

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LevelParams {
    grid: u64,
    support: u64,
    height: i32,
    width: i32,
    c: i32,
    output: i32,
    scale: [f32; 2],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct CorrelateParams {
    positions: u64,
    out: u64,
    levels: [LevelParams; 3],
    n: i32,
    frames: i32,
    frames_per_block: i32,
    unused: i32,
}

/// One level of the correlation.
#[derive(Debug, Clone, Copy)]
pub struct CorrelateLevel {
    /// `[frames, height, width, c]`.
    pub grid: Slice,
    /// `[n, 49, c]`.
    pub support: Slice,
    /// Rows and columns of the grid.
    pub size: [usize; 2],
    /// Channels.
    pub c: usize,
    /// What positions are multiplied by to be in cells of the grid, along x and y.
    pub scale: [f32; 2],
}

impl<C: Copy> Tape<C> {
    /// The local 4D correlation of three levels: `[3, 2, n · frames, 49, 56]`, per level once with the places around
    /// the position as pixels and the support as channels, once the other way round.
    ///
    /// # Errors
    /// Slices that are too short.
    pub fn correlate(
        &mut self,
        element: Element,
        levels: [CorrelateLevel; 3],
        positions: Slice,
        (n, frames): (usize, usize),
        out: Slice,
    ) -> Result<()> {
        let tokens = n * frames;
        let cells = crate::SUPPORT * crate::SUPPORT;
        let mut params = Vec::with_capacity(3);
        for (i, level) in levels.iter().enumerate() {
            let [height, width] = level.size;
            params.push(LevelParams {
                grid: level
                    .grid
                    .room(frames * height * width * level.c, element.size())?,
                support: level.support.room(n * cells * level.c, element.size())?,
                height: small(height)?,
                width: small(width)?,
                c: small(level.c)?,
                output: small(i)?,
                scale: level.scale,
            });
        }
        // The level with the most channels takes longest, so its blocks start first.
        params.sort_by_key(|level| std::cmp::Reverse(level.c));
        let values = 3 * 2 * tokens * cells * CORRELATION_CHANNELS;
        let params = CorrelateParams {
            positions: positions.room(tokens * 2, 4)?,
            out: out.room(values, element.size())?,
            levels: [params[0], params[1], params[2]],
            n: small(n)?,
            frames: small(frames)?,
            frames_per_block: FRAMES_PER_BLOCK as i32,
            unused: 0,
        };
        let result = Written {
            at: params.out,
            values,
            element,
        };
        let grid = [n, frames.div_ceil(FRAMES_PER_BLOCK), 3];
        self.push(
            format!("correlate_{}", element.product()),
            grid,
            128,
            CORRELATE_SHARED,
            &params,
            result,
        );
        Ok(())
    }

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
        let result = Written {
            at: params.support,
            values,
            element,
        };
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
