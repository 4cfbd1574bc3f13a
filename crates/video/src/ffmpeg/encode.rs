//! Placeholder.
pub(crate) struct VideoEncoder;
