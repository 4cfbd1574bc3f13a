//! Watching a run and ending it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use track_model::{Observer, Stage as ModelStage};
use track_profile::Profiler;

use crate::{Error, Result};

/// Ends a run from another thread. Clones share one switch.
///
/// ```
/// let cancel = track::Cancel::new();
/// let switch = cancel.clone();
/// switch.cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every run that watches this switch, at its next step, with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the switch was thrown.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Decoding frames and computing their features; counted in frames.
    Encode,
    /// Following the points; counted in steps of the model.
    Track,
    /// Drawing the overlay; counted in frames.
    Overlay,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Pieces done.
    pub done: usize,
    /// All pieces, where that is known; for frames it is what the file says and may be off.
    pub total: Option<usize>,
}

type Callback<'a> = dyn Fn(Progress) + Sync + 'a;

/// What watches a run: a callback for progress, a switch that ends it, a profiler. Nothing by default.
///
/// ```
/// use track::{Cancel, Watch};
/// let cancel = Cancel::new();
/// let watch = Watch::new()
///     .on_progress(|p| println!("{:?}: {} of {:?}", p.stage, p.done, p.total))
///     .cancelled_by(&cancel);
/// ```
#[derive(Default)]
pub struct Watch<'a> {
    progress: Option<Box<Callback<'a>>>,
    cancel: Cancel,
    profiler: Profiler,
}

impl<'a> Watch<'a> {
    /// Watches nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `callback` after each piece of work, from a thread of the run. It should return soon.
    #[must_use]
    pub fn on_progress(mut self, callback: impl Fn(Progress) + Sync + 'a) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// Ends the run when `cancel` is thrown.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Records what the model's layers cost.
    #[must_use]
    pub fn profiled_by(mut self, profiler: &Profiler) -> Self {
        self.profiler = profiler.clone();
        self
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub(crate) fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    pub(crate) fn report(&self, stage: Stage, done: usize, total: Option<usize>) {
        if let Some(callback) = &self.progress {
            callback(Progress { stage, done, total });
        }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("progress", &self.progress.is_some())
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// Hands the model's progress to a watch.
pub(crate) struct Relay<'a> {
    pub(crate) watch: &'a Watch<'a>,
    /// Frames expected, where that is known.
    pub(crate) frames: Option<usize>,
}

impl Observer for Relay<'_> {
    fn progress(&self, stage: ModelStage) {
        match stage {
            // A file may hold more frames than it says: the total never falls behind.
            ModelStage::Encode { frames } => {
                let total = self.frames.map(|total| total.max(frames));
                self.watch.report(Stage::Encode, frames, total);
            }
            ModelStage::Track { done, total } => {
                self.watch.report(Stage::Track, done, Some(total));
            }
            _ => {}
        }
    }

    fn cancelled(&self) -> bool {
        self.watch.cancel.is_cancelled()
    }
}
