//! What can go wrong in a model.

use std::path::PathBuf;

use crate::{ModelKind, Precision, PrecisionError, Size};

/// What can go wrong while weights are loaded or a clip is tracked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file of weights cannot be read at all.
    #[error("cannot read the weights {path}: {reason}")]
    WeightsUnreadable {
        /// The file, or the name of embedded weights.
        path: PathBuf,
        /// What the system or the format's reader said.
        reason: String,
    },
    /// The file was read, but is no checkpoint of a model known here.
    #[error("the weights {path} do not fit: {reason}")]
    WeightsUnknown {
        /// The file, or the name of embedded weights.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// Tensors are missing, left over or of another shape. Every one is named.
    #[error("the weights {path} do not fit {kind}: {}", problems.join("; "))]
    WeightsMismatch {
        /// The file, or the name of embedded weights.
        path: PathBuf,
        /// The model that was to be filled.
        kind: ModelKind,
        /// One phrase per tensor that does not fit.
        problems: Vec<String>,
    },
    /// The device cannot compute in the precision that was asked for.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// A layer's result is infinite or not a number.
    #[error("the layer {layer} gave values that are not finite in {precision} on {place}; {}", remedy(*precision))]
    NotFinite {
        /// The first such layer.
        layer: String,
        /// The precision that it was computed in.
        precision: Precision,
        /// The frames, or the points and the refinement, that it worked on.
        place: String,
    },
    /// A query is not a number, or lies on a frame that the clip does not have.
    #[error("query {index} is unusable: {reason}")]
    Query {
        /// Position in the list of queries.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The frames pushed do not have the size that the session was opened for.
    #[error("frames of {found} were pushed into a session for {expected}; push frames of one size")]
    FrameSize {
        /// The session's size.
        expected: Size,
        /// The size of the frames pushed.
        found: Size,
    },
    /// A picture without pixels.
    #[error("a clip or a resolution has no pixels; both sides must be at least 1")]
    EmptyPicture,
    /// No frame was pushed before tracking.
    #[error("the clip has no frames; push at least one before tracking")]
    NoFrames,
    /// The run would need more memory than it may take.
    #[error("tracking needs about {} MiB for this clip, but {} MiB may be used; use fewer frames or a smaller resolution", needed >> 20, budget >> 20)]
    Memory {
        /// Bytes that the run would need.
        needed: u64,
        /// Bytes that it may use.
        budget: u64,
    },
    /// The caller asked to stop.
    #[error("tracking was cancelled")]
    Cancelled,
    /// The tensor library or the device failed.
    #[error("the computation failed: {0}")]
    Device(String),
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Device(sentence(&error))
    }
}

/// What an error of Candle says, without the backtrace that it carries where `RUST_BACKTRACE` is set.
pub(crate) fn sentence(error: &candle_core::Error) -> String {
    match error {
        candle_core::Error::WithBacktrace { inner, .. } => sentence(inner),
        other => other.to_string(),
    }
}

/// What to do about values that are not finite.
fn remedy(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "no precision is wider, so use other weights",
        _ => "use f32, and other weights if that does not help",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_device_is_one_sentence_whatever_the_environment() {
        let inner = Box::new(candle_core::Error::msg("no room"));
        let backtrace = Box::new(std::backtrace::Backtrace::force_capture());
        let error = candle_core::Error::WithBacktrace { inner, backtrace };
        assert!(error.to_string().lines().count() > 1);
        let said = Error::from(error).to_string();
        assert_eq!(said, "the computation failed: no room");
    }
}
