//! Instance norms, recorded on a tape.

use candle_core::{Result, bail};

use super::ops::Affine;
use super::product::small;
use super::tape::Written;
use super::{Element, Slice, Tape};

/// Frames of a launch, at most: each has a counter at the start of the scratch, whatever else lies behind.
const MOST_FRAMES: usize = 1024;
/// Parts of a picture times channels, at most, as `NormStatsParams` says.
const MOST_PARTS: usize = 4096;
/// Values that a block takes where pictures are not larger than [`MOST_PARTS`] allows for: enough to be worth its
/// start, few enough for several blocks on every multiprocessor.
const BLOCK_VALUES: usize = 16384;

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct StatsParams {
    x: u64,
    weight: u64,
    done: u64,
    partial: u64,
    moments: u64,
    pixels: i32,
    c: i32,
    parts: i32,
    rows: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ApplyParams {
    x: u64,
    y: u64,
    moments: u64,
    bias: u64,
    pixels: i32,
    c: i32,
    rows: i32,
}

/// Parts that a picture's statistics are summed in.
fn parts(pixels: usize, c: usize) -> usize {
    let most = (MOST_PARTS / c).max(1);
    (pixels * c).div_ceil(BLOCK_VALUES).clamp(1, most)
}

/// Values of scratch that [`Tape::instance_norm_relu`] needs.
pub fn instance_norm_scratch(frames: usize, pixels: usize, c: usize) -> usize {
    MOST_FRAMES + frames * (1 + parts(pixels, c)) * 2 * c
}

impl<C: Copy> Tape<C> {
    /// `relu(norm(x))` with statistics over each frame and channel: `[frames, pixels, c]`. `y` may be `x`.
    ///
    /// `scratch` holds [`instance_norm_scratch`] f32 values. It begins with counters, which must be zero when the tape
    /// first runs, and are zero again after every run: fill it with zeros once. Norms of any shape can share it, one
    /// after the other, but nothing else may write there.
    ///
    /// # Errors
    /// Slices that are too short, more than 1024 frames, or channels that are not a power of two from 8 to 256.
    #[allow(clippy::too_many_arguments)] // Each is a different thing.
    pub fn instance_norm_relu(
        &mut self,
        element: Element,
        x: Slice,
        (frames, pixels, c): (usize, usize, usize),
        affine: &Affine,
        scratch: Slice,
        y: Slice,
    ) -> Result<()> {
        if frames > MOST_FRAMES {
            bail!("an instance norm takes at most {MOST_FRAMES} frames at a time, not {frames}")
        }
        if !c.is_power_of_two() || !(8..=256).contains(&c) {
            bail!("an instance norm takes 8, 16, 32, 64, 128 or 256 channels, not {c}")
        }
        let (parts, values) = (parts(pixels, c), frames * pixels * c);
        let done = scratch.room(instance_norm_scratch(frames, pixels, c), 4)?;
        let moments = scratch.skip(MOST_FRAMES * 4)?;
        let partial = moments.skip(frames * 2 * c * 4)?;
        let moments = moments.room(frames * 2 * c, 4)?;
        let x = x.room(values, element.size())?;
        let stats = StatsParams {
            x,
            weight: affine.weight.all().room(c, 4)?,
            done,
            partial: partial.room(frames * parts * 2 * c, 4)?,
            moments,
            pixels: small(pixels)?,
            c: small(c)?,
            parts: small(parts)?,
            rows: small(pixels.div_ceil(parts))?,
        };
        let sums = Written {
            at: moments,
            values: frames * 2 * c,
            element: Element::F32,
        };
        let name = element.memory();
        self.push(
            format!("norm_stats_{name}"),
            [parts, frames, 1],
            256,
            0,
            &stats,
            sums,
        );
        let rows = BLOCK_VALUES / c;
        let apply = ApplyParams {
            x,
            y: y.room(values, element.size())?,
            moments,
            bias: affine.bias.all().room(c, 4)?,
            pixels: small(pixels)?,
            c: small(c)?,
            rows: small(rows)?,
        };
        let result = Written {
            at: apply.y,
            values,
            element,
        };
        let grid = [pixels.div_ceil(rows), frames, 1];
        self.push(format!("norm_apply_{name}"), grid, 256, 0, &apply, result);
        Ok(())
    }
}
