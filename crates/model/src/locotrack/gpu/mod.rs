//! LocoTrack on a CUDA device: the same forward pass as on the CPU, recorded on tapes of device code.
//!
//! Frames are encoded a batch at a time by one tape, which is replayed for every batch. Queries are followed in chunks:
//! one tape makes the first estimate, one the iteration that is replayed four times. Memory and tapes are kept between
//! clips, so that a clip of a size seen before allocates nothing and records nothing.

mod encode;
mod follow;
mod network;
mod room;
mod session;

use std::sync::{Mutex, PoisonError};

use track_kernels::cuda::{Element, Gpu};

use self::network::Network;
use self::session::{GpuSession, Workspace};
use super::config::{Config, MODEL_SIZE};
use crate::weights::Weights;
use crate::{Context, ModelKind, PointTracker, Precision, Result, Session, SessionOptions, Size};

/// Frames encoded together at 256×256; fewer of larger pictures.
const ENCODED_TOGETHER: usize = 48;
/// Tokens (points × frames) refined together.
const CHUNK_TOKENS: usize = 12_288;
/// Points refined together at most: more do not make a short clip faster.
const CHUNK_POINTS: usize = 256;

/// LocoTrack small or base on a device.
#[derive(Debug)]
pub(crate) struct GpuLocoTrack {
    config: Config,
    gpu: Gpu,
    precision: Precision,
    network: Network,
    /// What finished sessions leave for the next.
    spare: Mutex<Vec<Workspace>>,
}

impl GpuLocoTrack {
    pub(crate) fn new(
        config: Config,
        weights: &Weights,
        gpu: &Gpu,
        precision: Precision,
    ) -> Result<Self> {
        let element = match precision {
            Precision::F32 => Element::F32,
            Precision::Tf32 => Element::Tf32,
            Precision::F16 => Element::F16,
            Precision::Bf16 => Element::Bf16,
        };
        Ok(Self {
            config,
            gpu: gpu.clone(),
            precision,
            network: Network::new(config, weights, gpu, element)?,
            spare: Mutex::default(),
        })
    }

    /// A workspace for clips of this kind: one that a session left, or a new one.
    fn workspace(&self, clip: Size, input: Size, refine: Size) -> Workspace {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match spare.iter().position(|w| w.suits(clip, input, refine)) {
            Some(i) => spare.swap_remove(i),
            None => {
                // Memory for other sizes would only be in the way.
                spare.clear();
                Workspace::new(&self.gpu, clip, input, refine)
            }
        }
    }

    fn give_back(&self, workspace: Workspace) {
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(workspace);
    }
}

/// Frames of a size that are encoded together.
fn batch(input: Size, refine: Size) -> usize {
    let pixels = (refine.width * refine.height).max(input.width * input.height);
    (ENCODED_TOGETHER * MODEL_SIZE.width * MODEL_SIZE.height / pixels.max(1))
        .clamp(1, ENCODED_TOGETHER)
}

/// Queries followed together.
fn query_chunk(asked: Option<usize>, frames: usize) -> usize {
    asked
        .unwrap_or(CHUNK_TOKENS / frames.max(1))
        .clamp(1, CHUNK_POINTS.max(asked.unwrap_or(0)))
}

impl PointTracker for GpuLocoTrack {
    fn kind(&self) -> ModelKind {
        self.config.kind
    }

    fn session<'a>(
        &'a self,
        clip: Size,
        options: &SessionOptions,
        context: Context<'a>,
    ) -> Result<Box<dyn Session + 'a>> {
        let (input, refine) = super::checked_sizes(clip, options)?;
        let workspace = self.workspace(clip, input, refine);
        Ok(Box::new(GpuSession::new(
            self,
            workspace,
            options.clone(),
            context,
        )))
    }

    fn memory(&self, clip: Size, frames: usize, queries: usize, options: &SessionOptions) -> u64 {
        let (input, refine) = super::sizes(clip, options.resolution);
        let size = self.network.element.size();
        let grids = |size: Size| super::grid_values(size);
        let mut values = frames.next_multiple_of(session::GROWTH) * grids(MODEL_SIZE);
        if refine != MODEL_SIZE {
            values += frames.next_multiple_of(session::GROWTH) * grids(refine);
        }
        // The encoder's activations: six of the widest, three of half of it, and the input.
        let pixels = (refine.width * refine.height).max(MODEL_SIZE.width * MODEL_SIZE.height);
        values += batch(input, refine) * pixels * (16 * 8 + 4);
        let chunk = query_chunk(options.query_chunk, frames).min(queries.max(1));
        let tokens = chunk * frames;
        let mut side = track_kernels::SUPPORT;
        let mut encoded = 0;
        for &(_, c_out, _, stride) in self.config.correlation {
            side = side.div_ceil(stride);
            encoded += 6 * side * side * c_out;
        }
        let per_token = 6 * 49 * track_kernels::cuda::CORRELATION_CHANNELS
            + encoded
            + self.network.token()
            + 10 * self.config.dim;
        values += tokens * per_token + chunk * 2 * 49 * (64 + 128 + 256);
        let fixed = batch(input, refine)
            * (clip.width * clip.height * 3 + input.width * input.height * 12)
            + tokens * 16
            + (64 << 20);
        (values * size + fixed) as u64
    }

    fn available_memory(&self) -> Option<u64> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: u64 = spare.iter().map(Workspace::bytes).sum();
        self.gpu.free_memory().ok().map(|free| free + kept)
    }
}
