//! Video files, through FFmpeg.

mod decode;
mod encode;
mod ffi;
mod stream;

use std::path::Path;
use std::sync::Once;

use ffmpeg_next as ff;

use crate::Error;

pub(crate) use decode::VideoSource;
pub(crate) use encode::{VideoEncoder, VideoSpec};

/// Silences FFmpeg's own log: what matters of it comes back as errors and warnings.
fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It only names error codes and never fails in the versions that are supported.
        let _ = ff::init();
        ff::log::set_level(ff::log::Level::Quiet);
    });
}

/// A path as FFmpeg takes it: explicitly a file, so that no name is mistaken for an address or an option.
fn url(path: &Path) -> Result<String, Error> {
    match path.to_str() {
        Some(text) if !text.contains('\0') => Ok(format!("file:{text}")),
        _ => Err(Error::Unsupported {
            path: path.to_path_buf(),
            reason: "its name is not valid UTF-8, which FFmpeg needs; rename it".to_owned(),
        }),
    }
}

/// The version of the FFmpeg in use, such as `5.1.8`.
pub(crate) fn version() -> String {
    ffi::version()
}
