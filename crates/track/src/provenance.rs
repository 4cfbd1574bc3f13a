//! What decided a result, so that it can be told later how it came about.

use serde::{Deserialize, Serialize};

use crate::ClipInfo;

/// Everything that decided a result. There is no clock in it: the same run gives the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Provenance {
    /// Name and version of this library.
    pub program: String,
    /// The model, such as `locotrack-small`.
    pub model: String,
    /// The weights.
    pub weights: WeightsRecord,
    /// The arithmetic: `f32`, `tf32`, `f16` or `bf16`.
    pub precision: String,
    /// The device: `cpu`, or `cuda:0` and so on.
    pub device: String,
    /// The picture that the model worked on: `model`, `clip` or `WIDTHxHEIGHT`.
    pub resolution: String,
    /// A point is visible where its confidence is at least this.
    pub visibility_threshold: f32,
    /// The clip.
    pub clip: ClipInfo,
    /// Version of the FFmpeg libraries, in a build that has them.
    pub ffmpeg: Option<String>,
}

/// Which weights were used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsRecord {
    /// The file as it was given, or the name of the built-in weights.
    pub name: String,
    /// SHA-256 of the file's bytes, in lower-case hexadecimal.
    pub sha256: String,
}
