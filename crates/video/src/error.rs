//! What can go wrong with pictures, coming in or going out.

use std::path::{Path, PathBuf};

/// Everything that reading or writing pictures can fail with.
///
/// Every message is one sentence that names the file, what was found and what to do about it.
/// [`Error::is_output`] and [`Error::is_usage`] sort the variants for a program's exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing lies under that name.
    #[error("{}: no such file or folder; check the path", .path.display())]
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file is there but the system will not let it be read.
    #[error("{}: cannot be read ({source}); check its permissions and the disk it is on", .path.display())]
    Unreadable {
        /// The path asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a video, or too damaged to be recognised as one.
    #[error("{}: expected a video, found {reason}", .path.display())]
    NotVideo {
        /// The path asked for.
        path: PathBuf,
        /// What was found instead, and what to do.
        reason: String,
    },
    /// A media file without moving pictures.
    #[error("{}: expected a video stream, found only {found}; give a file that has pictures in it", .path.display())]
    NoVideoStream {
        /// The path asked for.
        path: PathBuf,
        /// The streams that are there.
        found: String,
    },
    /// A video stream, a folder or a pattern without a single frame.
    #[error("{}: expected at least one frame, found none; {hint}", .path.display())]
    NoFrames {
        /// The path asked for.
        path: PathBuf,
        /// Why, or what to do.
        hint: String,
    },
    /// A frame that cannot be decoded.
    #[error("{}: cannot be decoded ({reason}); the file may be damaged, try to play it or convert it again", .path.display())]
    Decode {
        /// The path asked for.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// Stills that do not make one video.
    #[error("{}: {reason}", .path.display())]
    Stills {
        /// The odd picture.
        path: PathBuf,
        /// What was expected of it, what was found, what to do.
        reason: String,
    },
    /// A position or a range that was not written as one.
    #[error("'{text}' is not a {expected}; {hint}")]
    InvalidRange {
        /// What was given.
        text: String,
        /// "frame or time", "range".
        expected: &'static str,
        /// How it is written.
        hint: String,
    },
    /// A range that no frame lies in.
    #[error(
        "the range {range} selects no frame{found}; choose a start before its end and inside the video"
    )]
    EmptyRange {
        /// The range, as it would be written.
        range: String,
        /// What the video has, where it is known: ` of FILE, which has …`.
        found: String,
    },
    /// Something this build or this library cannot do.
    #[error("{}: {reason}", .path.display())]
    Unsupported {
        /// The file concerned.
        path: PathBuf,
        /// What was asked, what is possible.
        reason: String,
    },
    /// Raw pixels whose description does not fit their data, or a frame that does not fit the others.
    #[error("{0}")]
    Pixels(String),
    /// The output cannot be created or written.
    #[error("{}: cannot be written ({reason})", .path.display())]
    Output {
        /// The output's path.
        path: PathBuf,
        /// What stands in the way, what to do.
        reason: String,
    },
    /// The output's encoder failed.
    #[error("{}: cannot be encoded ({reason})", .path.display())]
    Encode {
        /// The output's path.
        path: PathBuf,
        /// What the encoder said.
        reason: String,
    },
}

impl Error {
    /// Whether the fault lies with the output (not writable, not encodable) and not with the input.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output { .. } | Self::Encode { .. })
    }

    /// Whether the fault lies in how the caller asked (a range or position that makes no sense).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::InvalidRange { .. } | Self::EmptyRange { .. })
    }

    /// Sorts an I/O error met while reading `path`.
    pub(crate) fn reading(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound { path },
            _ => Self::Unreadable { path, source },
        }
    }

    /// A decoder's complaint about `path`.
    pub(crate) fn decode(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Decode {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }

    /// An obstacle in the way of writing `path`.
    pub(crate) fn output(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Output {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }

    /// An encoder's complaint about `path`.
    pub(crate) fn encode(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Encode {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }
}
