//! How the program ends when it fails: one sentence and an exit code.

use std::fmt;

use track::ErrorKind;

/// Exit codes. 0 is success.
pub(crate) mod code {
    /// A fault of ours.
    pub(crate) const INTERNAL: u8 = 1;
    /// Bad usage, or an output path that cannot be used.
    pub(crate) const USAGE: u8 = 2;
    /// Input that cannot be read or is not a video.
    pub(crate) const INPUT: u8 = 3;
    /// Weights that do not fit.
    pub(crate) const WEIGHTS: u8 = 4;
    /// Device or memory.
    pub(crate) const DEVICE: u8 = 5;
    /// Golden outputs moved further than allowed.
    pub(crate) const MOVED: u8 = 6;
    /// Interrupted, as a shell reports it.
    pub(crate) const INTERRUPTED: u8 = 130;

    /// The code of a kind of errors.
    pub(crate) fn of(kind: super::ErrorKind) -> u8 {
        use super::ErrorKind;
        match kind {
            ErrorKind::Usage => USAGE,
            ErrorKind::Input => INPUT,
            ErrorKind::Weights => WEIGHTS,
            ErrorKind::Device => DEVICE,
            ErrorKind::Cancelled => INTERRUPTED,
            _ => INTERNAL,
        }
    }
}

/// A failure with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl From<track::Error> for Failure {
    fn from(error: track::Error) -> Self {
        let code = code::of(error.kind());
        Self {
            code,
            error: error.into(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            code: code::INTERNAL,
            error,
        }
    }
}

impl fmt::Display for Failure {
    /// One line, whatever a library put into its message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:#}", self.error);
        let words: Vec<_> = text.split_whitespace().collect();
        f.write_str(&words.join(" "))
    }
}

/// A failure for which the command line is to blame.
pub(crate) fn usage(message: impl Into<String>) -> Failure {
    Failure {
        code: code::USAGE,
        error: anyhow::Error::msg(message.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line() {
        assert_eq!(usage("a\n  b").to_string(), "a b");
    }

    #[test]
    fn kinds_have_their_codes() {
        assert_eq!(Failure::from(track::Error::Cancelled).code, 130);
        assert_eq!(Failure::from(track::Error::NoPoints).code, 2);
    }
}
