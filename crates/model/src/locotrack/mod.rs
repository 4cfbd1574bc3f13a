//! LocoTrack (Cho et al., "Local All-Pair Correspondence for Point Tracking", ECCV 2024, arXiv 2407.15420).
//!
//! A clip's frames are encoded once. Each query is first found in every frame by a global cost volume
//! ([`track_kernels::initial_tracks`]), then its track is refined four times: the local 4D correlation around
//! every position is encoded and a transformer over the frames corrects position and visibility.

mod config;
mod cost;
mod encoder;
#[cfg(any(feature = "cuda", feature = "emulate"))]
mod gpu;
mod layers;
mod refine;
mod session;

use candle_core::{Device, Tensor};
use track_kernels::CostHead;

pub(crate) use config::Config;
use config::{ARG_MAX_RADIUS, MODEL_SIZE, STRIDE, TEMPERATURE};
use encoder::Encoder;
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(crate) use gpu::GpuLocoTrack;
use refine::Refiner;
use session::LocoTrackSession;

use crate::weights::Weights;
use crate::{
    Context, ModelKind, PointTracker, Query, Resolution, Result, Session, SessionOptions, Size,
};

/// LocoTrack small or base.
#[derive(Debug)]
pub(crate) struct LocoTrack {
    config: Config,
    device: Device,
    encoder: Encoder,
    cost_head: CostHead,
    refiner: Refiner,
}

impl LocoTrack {
    /// Lays checked weights out for the device.
    pub(crate) fn new(config: Config, weights: &Weights, device: &Device) -> Result<Self> {
        let cost_head = CostHead::new(
            weights.pair("cost_conv")?,
            weights.pair("occ_linear")?,
            TEMPERATURE,
            ARG_MAX_RADIUS,
        )?;
        Ok(Self {
            config,
            device: device.clone(),
            encoder: Encoder::new(weights)?,
            cost_head,
            refiner: Refiner::new(weights, &config)?,
        })
    }
}

/// The picture fed in, and the one that tracks are refined on.
///
/// The clip is fed in at `input`. Where that is larger than 256 on either axis, the first estimate is made at
/// 256×256 and the refinement works at `input` rounded down to multiples of 8; otherwise all is at 256×256.
fn sizes(clip: Size, resolution: Resolution) -> (Size, Size) {
    let input = match resolution {
        Resolution::Model => MODEL_SIZE,
        Resolution::Clip => clip,
        Resolution::Custom(size) => size,
    };
    let refine = if input.width > MODEL_SIZE.width || input.height > MODEL_SIZE.height {
        let down = |side: usize| (side / STRIDE).max(1) * STRIDE;
        Size {
            width: down(input.width),
            height: down(input.height),
        }
    } else {
        MODEL_SIZE
    };
    (input, refine)
}

/// The same for a session, which needs pixels.
fn checked_sizes(clip: Size, options: &SessionOptions) -> Result<(Size, Size)> {
    let (input, refine) = sizes(clip, options.resolution);
    if [clip, input].iter().any(|s| s.width == 0 || s.height == 0) {
        return Err(crate::Error::EmptyPicture);
    }
    Ok((input, refine))
}

/// How many frames these are, if they are pictures of the clip's size.
fn count_frames(frames: &Tensor, clip: Size) -> Result<usize> {
    let (n, height, width, channels) = frames.dims4()?;
    let found = Size { width, height };
    if found != clip || channels != 3 {
        return Err(crate::Error::FrameSize {
            expected: clip,
            found,
        });
    }
    Ok(n)
}

/// A query's frame, and its raster position y, x in cells of a grid of so many rows and columns.
fn in_grid(query: &Query, [height, width]: [usize; 2], clip: Size) -> [f32; 3] {
    let scale = |v: f32, cells: usize, pixels: usize| v * (cells as f32 / pixels as f32);
    [
        query.t,
        scale(query.y, height, clip.height),
        scale(query.x, width, clip.width),
    ]
}

/// Values of one frame's three grids at a size.
fn grid_values(size: Size) -> usize {
    [(2, 64), (4, 128), (8, 256)]
        .iter()
        .map(|(stride, c)| size.width.div_ceil(*stride) * size.height.div_ceil(*stride) * c)
        .sum()
}

impl PointTracker for LocoTrack {
    fn kind(&self) -> ModelKind {
        self.config.kind
    }

    fn session<'a>(
        &'a self,
        clip: Size,
        options: &SessionOptions,
        context: Context<'a>,
    ) -> Result<Box<dyn Session + 'a>> {
        let (input, refine) = checked_sizes(clip, options)?;
        Ok(Box::new(LocoTrackSession::new(
            self,
            clip,
            input,
            refine,
            options.clone(),
            context,
        )))
    }

    fn memory(&self, clip: Size, frames: usize, queries: usize, options: &SessionOptions) -> u64 {
        let (input, refine) = sizes(clip, options.resolution);
        let mut grids = grid_values(MODEL_SIZE);
        if refine != MODEL_SIZE {
            grids += grid_values(refine);
        }
        let chunk = session::query_chunk(options.query_chunk, frames).min(queries.max(1));
        // A token's correlation, its widest activation and a few of the transformer's width; supports.
        let tokens =
            chunk * frames * (3 * 2 * self.config.correlation_outputs() + 9 * self.config.dim);
        let supports = chunk * 49 * (64 + 128 + 256);
        // The encoder's activations for the frames of one piece of work, and the largest grid once more while
        // the frames' grids are joined.
        let pixels = refine.width.max(MODEL_SIZE.width) * refine.height.max(MODEL_SIZE.height);
        let working = session::ENCODED_TOGETHER * (pixels * 80 + input.width * input.height * 3);
        let joining = frames * pixels * 16;
        4 * (frames * grids + tokens + supports + working + joining) as u64
    }
}

/// The frame whose position a query gives: halves go to the even frame.
fn own_frame(query: &Query, frames: usize) -> usize {
    (query.t.round_ties_even().max(0.0) as usize).min(frames.saturating_sub(1))
}

/// Refuses queries that are no numbers or lie on no frame.
fn check_queries(queries: &[Query], frames: usize) -> Result<()> {
    for (index, q) in queries.iter().enumerate() {
        let reason = if ![q.t, q.x, q.y].iter().all(|v| v.is_finite()) {
            "it is not a number".to_owned()
        } else if q.t < 0.0 || q.t > (frames - 1) as f32 {
            format!("frame {} is outside 0..{frames}", q.t)
        } else {
            continue;
        };
        return Err(crate::Error::Query { index, reason });
    }
    Ok(())
}

/// `[n, height, width, 3]` u8 to f32 in −1..1 at a size. A resized picture is never rounded back to u8.
fn to_input(frames: &Tensor, size: Size) -> candle_core::Result<Tensor> {
    track_kernels::resize_bilinear(frames, size.height, size.width)?.affine(1.0 / 127.5, -1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_above_256_is_refined_at_its_own_size_and_others_at_256() {
        let size = |width, height| Size { width, height };
        assert_eq!(
            sizes(size(320, 180), Resolution::Model),
            (MODEL_SIZE, MODEL_SIZE)
        );
        assert_eq!(
            sizes(size(200, 100), Resolution::Clip),
            (size(200, 100), MODEL_SIZE)
        );
        assert_eq!(
            sizes(size(515, 390), Resolution::Clip),
            (size(515, 390), size(512, 384))
        );
        assert_eq!(
            sizes(size(300, 5), Resolution::Clip),
            (size(300, 5), size(296, 8))
        );
        assert_eq!(
            sizes(size(300, 5), Resolution::Custom(size(384, 288))).1,
            size(384, 288)
        );
    }
}
