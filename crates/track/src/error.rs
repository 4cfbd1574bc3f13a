//! What can go wrong between a video and its tracks.

use std::path::{Path, PathBuf};

/// Everything that tracking can fail with. Every message is one sentence that names the file or the point,
/// what was expected, what was found and what to do.
///
/// [`Error::kind`] sorts the variants for a program's exit code or an app's dialogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Pictures could not be read, or the overlay could not be written.
    #[error(transparent)]
    Video(#[from] track_video::Error),
    /// Weights do not fit, memory does not suffice, or the computation failed.
    #[error(transparent)]
    Model(#[from] track_model::Error),
    /// An app's own source of frames failed.
    #[error("frame {frame} of {clip} could not be read: {reason}")]
    Source {
        /// What messages call the clip.
        clip: String,
        /// Frames delivered before the failure.
        frame: u64,
        /// What the source said.
        reason: String,
    },
    /// A frame does not fit the clip it belongs to.
    #[error("frame {frame} of {clip} is unusable: {reason}")]
    Frame {
        /// What messages call the clip.
        clip: String,
        /// The frame, counted from the clip's first.
        frame: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// A clip without a single frame.
    #[error("{clip} has no frames; give a clip with at least one")]
    NoFrames {
        /// What messages call the clip.
        clip: String,
    },
    /// A point that does not lie in the clip.
    #[error("point {index} ({point}) is unusable: {reason}")]
    Point {
        /// Its position in the list of points, counted from 0.
        index: usize,
        /// Its numbers, as `t 0, x 1.5, y 2`.
        point: String,
        /// What was expected.
        reason: String,
    },
    /// No point to follow.
    #[error("there are no points to follow; give at least one point, a grid or a mask")]
    NoPoints,
    /// A grid, a mask or another request that makes no sense for this clip.
    #[error("{0}")]
    Request(String),
    /// A file of points or a mask that cannot be read as one.
    #[error("{}: {reason}", path.display())]
    InputFile {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found and what to do.
        reason: String,
    },
    /// A file of weights that cannot be read.
    #[error("{}: cannot read the weights ({reason}); give a .safetensors file or a PyTorch checkpoint", path.display())]
    WeightsFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A device that is not there.
    #[error("{0}")]
    Device(String),
    /// An output that cannot be written.
    #[error("{}: cannot be written ({reason})", path.display())]
    Output {
        /// The output's path.
        path: PathBuf,
        /// What stands in the way and what to do.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("tracking was cancelled")]
    Cancelled,
    /// Something that should not happen, whatever is given.
    #[error("internal fault: {0}; please report it")]
    Internal(String),
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for makes no sense, or an output's path cannot be used.
    Usage,
    /// An input cannot be read, or is not what it should be.
    Input,
    /// Weights cannot be read or do not fit.
    Weights,
    /// The device is missing, cannot do it or has too little memory.
    Device,
    /// The caller asked to stop.
    Cancelled,
    /// A fault of ours.
    Internal,
}

impl Error {
    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        use track_model::Error as Model;
        match self {
            // The path was good enough to begin with, so the caller is not to blame for an encoder.
            Self::Video(track_video::Error::Encode { .. }) => ErrorKind::Internal,
            Self::Video(e) if e.is_usage() || e.is_output() => ErrorKind::Usage,
            Self::Video(_)
            | Self::Source { .. }
            | Self::Frame { .. }
            | Self::NoFrames { .. }
            | Self::InputFile { .. } => ErrorKind::Input,
            Self::Point { .. } | Self::NoPoints | Self::Request(_) | Self::Output { .. } => {
                ErrorKind::Usage
            }
            Self::WeightsFile { .. } => ErrorKind::Weights,
            Self::Device(_) => ErrorKind::Device,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Internal(_) => ErrorKind::Internal,
            Self::Model(e) => match e {
                Model::WeightsUnreadable { .. }
                | Model::WeightsUnknown { .. }
                | Model::WeightsMismatch { .. } => ErrorKind::Weights,
                Model::Precision(_)
                | Model::Memory { .. }
                | Model::NotFinite { .. }
                | Model::Device(_) => ErrorKind::Device,
                Model::Query { .. } => ErrorKind::Usage,
                Model::NoFrames => ErrorKind::Input,
                Model::Cancelled => ErrorKind::Cancelled,
                _ => ErrorKind::Internal,
            },
        }
    }

    pub(crate) fn input(path: &Path, reason: impl Into<String>) -> Self {
        Self::InputFile {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }

    pub(crate) fn output(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Output {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }
}

/// What the system says of a failure, without the number that it appends.
pub(crate) fn os_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_sort_the_models_errors() {
        let memory = Error::Model(track_model::Error::Memory {
            needed: 2 << 20,
            budget: 1 << 20,
        });
        assert_eq!(memory.kind(), ErrorKind::Device);
        let cancelled = Error::Model(track_model::Error::Cancelled);
        assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
        assert_eq!(Error::NoPoints.kind(), ErrorKind::Usage);
    }

    #[test]
    fn system_messages_lose_their_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(os_reason(&error), "no such file or directory");
    }
}
