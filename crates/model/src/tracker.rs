//! What every model offers: clip in, tracks out.

use std::fmt;
use std::time::Duration;

use candle_core::Tensor;
use track_profile::Profiler;

use crate::Result;
use crate::locotrack::Config;

/// A model that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelKind {
    /// LocoTrack with 256 channels and 4 heads in its transformer (8.2 million values).
    LocoTrackSmall,
    /// LocoTrack with 384 channels and 6 heads in its transformer (11.5 million values).
    LocoTrackBase,
}

impl ModelKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::LocoTrackSmall, Self::LocoTrackBase];

    /// The name on the command line and in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::LocoTrackSmall => "locotrack-small",
            Self::LocoTrackBase => "locotrack-base",
        }
    }

    /// Every tensor of a checkpoint: its published name, without a wrapper's prefix, and its shape.
    pub fn tensors(self) -> Vec<(String, Vec<usize>)> {
        Config::of(self).tensors()
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.width, self.height)
    }
}

/// A point to follow: where it is on one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Query {
    /// Frame index in the clip. A fraction samples the features between two frames.
    pub t: f32,
    /// Raster position from the left edge, in pixels of the clip.
    pub x: f32,
    /// Raster position from the top edge, in pixels of the clip.
    pub y: f32,
}

/// The picture that a model works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolution {
    /// Every frame resized to the model's own resolution (256×256 for LocoTrack), aspect not kept, as the
    /// published inference helpers do and as weights are trained.
    #[default]
    Model,
    /// The clip's size, where the model refines on larger pictures (LocoTrack above 256 on either axis).
    Clip,
    /// The clip resized to this size first.
    Custom(Size),
}

/// Decides how a session is run. None of it changes a result beyond its precision, except `resolution`.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The picture that the model works on.
    pub resolution: Resolution,
    /// Queries refined together; `None` lets the model choose.
    pub query_chunk: Option<usize>,
    /// Bytes that the run may take; `None` for no limit.
    pub memory_budget: Option<u64>,
    /// Look at every layer's result and end the run at the first that is not finite, naming the layer. Slow.
    pub check_finite: bool,
}

impl SessionOptions {
    /// Refuses a run that would take more than it may.
    ///
    /// # Errors
    /// [`crate::Error::Memory`], where `needed` bytes are over the budget.
    pub fn check_memory(&self, needed: u64) -> Result<()> {
        match self.memory_budget {
            Some(budget) if needed > budget => Err(crate::Error::Memory { needed, budget }),
            _ => Ok(()),
        }
    }
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Frames encoded so far.
    Encode {
        /// Frames done.
        frames: usize,
    },
    /// Queries tracked so far.
    Track {
        /// Finished steps (an initial estimate or one refinement of one chunk of queries).
        done: usize,
        /// All steps.
        total: usize,
    },
}

/// Watches a run and may end it. Called from the thread that runs it, between pieces of work.
pub trait Observer: Sync {
    /// Called after each piece of work.
    fn progress(&self, _stage: Stage) {}

    /// Asked between pieces of work; `true` ends the run with [`crate::Error::Cancelled`].
    fn cancelled(&self) -> bool {
        false
    }

    /// Whether [`Observer::stage`] is to be called.
    fn wants_stages(&self) -> bool {
        false
    }

    /// Shown the intermediate results of each chunk of queries by name, for tests and for finding out where a
    /// number went wrong. LocoTrack shows `grid.{hires,lowres,highest}` `[frames, height, width, c]` and
    /// `support.{hires,lowres,highest}` `[queries, 7, 7, c]` at 256×256, and after iteration K (0: the first
    /// estimate) `iterK.{tracks,occlusion,expected_dist}`, positions in pixels of the clip.
    fn stage(&self, _name: &str, _tensor: &Tensor) {}
}

/// An observer that watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// What is handed down a forward pass.
#[derive(Clone)]
pub struct Context<'a> {
    /// Records what layers cost.
    pub profiler: Profiler,
    /// Watches the run.
    pub observer: &'a dyn Observer,
}

impl Default for Context<'static> {
    fn default() -> Self {
        Self {
            profiler: Profiler::off(),
            observer: &Silent,
        }
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("profiler", &self.profiler)
            .finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// Shows the observer a level's grid and supports, at 256×256.
    pub(crate) fn show_level(&self, name: &str, grid: &Tensor, support: &Tensor) {
        self.observer.stage(&format!("grid.{name}"), grid);
        self.observer.stage(&format!("support.{name}"), support);
    }

    /// Shows the observer the state after an iteration; 0 is the first estimate.
    pub(crate) fn show_state(&self, iteration: usize, state: &RawTracks) {
        let show = |part, tensor| {
            self.observer
                .stage(&format!("iter{iteration}.{part}"), tensor)
        };
        show("tracks", &state.positions);
        show("occlusion", &state.occlusion);
        show("expected_dist", &state.expected_dist);
    }

    /// Ends the run when the observer wants it.
    pub(crate) fn check(&self) -> Result<()> {
        if self.observer.cancelled() {
            Err(crate::Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// What a model answers, before anything is thresholded. All tensors are f32 on the CPU.
#[derive(Debug, Clone)]
pub struct RawTracks {
    /// `[queries, frames, 2]`: raster positions x, y in pixels of the clip, never clamped.
    pub positions: Tensor,
    /// `[queries, frames]`: logit of being occluded.
    pub occlusion: Tensor,
    /// `[queries, frames]`: logit of the position being further off than the model's training threshold.
    pub expected_dist: Tensor,
}

/// A model ready to track, shared freely between threads.
pub trait PointTracker: Send + Sync + fmt::Debug {
    /// Which model it is.
    fn kind(&self) -> ModelKind;

    /// Opens a clip of frames of this size.
    ///
    /// # Errors
    /// A size of zero, or a resolution that the model cannot work at.
    fn session<'a>(
        &'a self,
        clip: Size,
        options: &SessionOptions,
        context: Context<'a>,
    ) -> Result<Box<dyn Session + 'a>>;

    /// Bytes that tracking such a clip takes at its peak, weights excluded (an estimate from above).
    fn memory(&self, clip: Size, frames: usize, queries: usize, options: &SessionOptions) -> u64;

    /// Bytes that are free where the model computes; `None` where that is the host's memory.
    fn available_memory(&self) -> Option<u64> {
        None
    }
}

/// One clip being tracked.
pub trait Session {
    /// Appends frames.
    ///
    /// `frames`: u8 `[n, height, width, 3]`, RGB, on the CPU.
    ///
    /// # Errors
    /// Frames of another size, the memory budget exceeded, cancellation, or a device that fails.
    fn push(&mut self, frames: &Tensor) -> Result<()>;

    /// Frames pushed so far.
    fn frames(&self) -> usize;

    /// Follows each query through every frame pushed so far. May be called more than once.
    ///
    /// # Errors
    /// No frame pushed, a query that is not finite or outside `0..frames`, cancellation, or a device that fails.
    fn track(&mut self, queries: &[Query]) -> Result<RawTracks>;

    /// What a device did for this session so far; `None` where the host computes.
    fn device_stats(&self) -> Option<DeviceStats> {
        None
    }
}

/// What a device did for a session so far, by its own events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Copying frames to the device.
    pub upload: Duration,
    /// The forward pass.
    pub model: Duration,
    /// Copying tracks from the device.
    pub download: Duration,
    /// Kernels and copies launched, those of a replayed graph included.
    pub launches: u64,
    /// Most bytes of the device's memory that were held, weights included.
    pub memory_bytes: u64,
}
