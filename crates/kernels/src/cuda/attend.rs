//! Attention over the frames of a track.

use candle_core::{Result, bail};

use super::buffer::Slice;
use super::product::small;
use super::tape::Written;
use super::{Element, Tape};
use crate::Attention;

/// Channels of a head.
const HEAD: usize = 64;
/// Heads that the device code has room for.
const MOST_HEADS: usize = 16;
/// Frames of a block.
const TILE: usize = 64;

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct AttentionParams {
    qkv: u64,
    out: u64,
    n: i32,
    frames: i32,
    c: i32,
    heads: i32,
    slopes: [f32; MOST_HEADS],
}

impl<C: Copy> Tape<C> {
    /// Softmax attention with a linear bias on the distance in time (LocoTrack, section 3.3), heads of 64 channels.
    ///
    /// `qkv`: `[n, frames, 3 · 64 · heads]`; result: `[n, frames, 64 · heads]`.
    ///
    /// # Errors
    /// Slices that are too short, an odd number of heads or more than 16.
    pub fn attention(
        &mut self,
        element: Element,
        qkv: Slice,
        (n, frames): (usize, usize),
        layer: Attention,
        out: Slice,
    ) -> Result<()> {
        let heads = layer.heads;
        if heads == 0 || !heads.is_multiple_of(2) || heads > MOST_HEADS {
            bail!(
                "attention of {heads} heads is not what the device code does: 2, 4 … {MOST_HEADS}"
            )
        }
        let c = heads * HEAD;
        let values = n * frames * c;
        let mut slopes = [0.0; MOST_HEADS];
        for (head, slope) in slopes.iter_mut().enumerate().take(heads) {
            *slope = layer.head(head).0;
        }
        let params = AttentionParams {
            qkv: qkv.room(3 * values, element.size())?,
            out: out.room(values, element.size())?,
            n: small(n)?,
            frames: small(frames)?,
            c: small(c)?,
            heads: small(heads)?,
            slopes,
        };
        let shared = match element {
            Element::F32 | Element::Tf32 => 43_008,
            _ if frames <= TILE => 24_576,
            _ => 40_960,
        };
        let result = Written {
            at: params.out,
            values,
            element,
        };
        let grid = [n, heads, frames.div_ceil(TILE)];
        self.push(
            format!("attention_{}", element.memory()),
            grid,
            128,
            shared,
            &params,
            result,
        );
        Ok(())
    }
}
