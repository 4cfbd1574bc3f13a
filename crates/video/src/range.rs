//! Which part of a video: positions by frame or time, and half-open ranges of them.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Times closer than this (seconds) are one: printed times carry six decimals.
pub(crate) const TIME_TOLERANCE: f64 = 1e-6;

/// A place in a video.
///
/// Written `120` (a frame index, counted from 0), `4.5s` (seconds) or `1:02.5`, `00:01:02.5` (clock time).
/// Times are presentation times of the source, those of [`Frame::time`](crate::Frame::time): a stream that
/// starts at 1.4 s has no frame before that. A time within a microsecond of a frame's is that frame's, so
/// that a time copied from a listing finds its frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Position {
    /// Index in the source, counted from its first frame.
    Frame(u64),
    /// Presentation time in seconds.
    Time(f64),
}

impl Position {
    /// Whether a frame of this index and time lies at or behind the position.
    pub(crate) fn reached(self, index: u64, time: f64) -> bool {
        match self {
            Self::Frame(at) => index >= at,
            Self::Time(at) => time + TIME_TOLERANCE >= at,
        }
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::InvalidRange {
            text: text.to_owned(),
            expected: "frame or time",
            hint: "write a frame as 120, a time as 4.5s, 1:02.5 or 00:01:02.5".to_owned(),
        };
        let trimmed = text.trim();
        if let Some(seconds) = trimmed.strip_suffix('s') {
            let (sign, digits) = match seconds.strip_prefix('-') {
                Some(rest) => (-1.0, rest),
                None => (1.0, seconds),
            };
            return decimal(digits)
                .map(|s| Self::Time(sign * s))
                .ok_or_else(bad);
        }
        if trimmed.contains(':') {
            let fields: Vec<&str> = trimmed.split(':').collect();
            let (last, whole) = fields.split_last().ok_or_else(bad)?;
            if whole.len() > 2 {
                return Err(bad());
            }
            let mut total = 0.0;
            for (place, field) in whole.iter().enumerate() {
                let value: u32 = digits(field).and_then(|d| d.parse().ok()).ok_or_else(bad)?;
                // Only the leading field may exceed 59: 90:00 is ninety minutes, 1:90:00 is a slip.
                if place > 0 && value > 59 {
                    return Err(bad());
                }
                total = total * 60.0 + f64::from(value);
            }
            let seconds = decimal(last).filter(|s| *s < 60.0).ok_or_else(bad)?;
            return Ok(Self::Time(total * 60.0 + seconds));
        }
        digits(trimmed)
            .and_then(|d| d.parse().ok())
            .map(Self::Frame)
            .ok_or_else(bad)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(at) => write!(f, "{at}"),
            Self::Time(at) => write!(f, "{at}s"),
        }
    }
}

/// The text if it is one or more ASCII digits and nothing else.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// A plain decimal number: no sign, no exponent, no names such as `inf`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.bytes().any(|b| b.is_ascii_digit());
    let value: f64 = plain.then(|| text.parse().ok()).flatten()?;
    value.is_finite().then_some(value)
}

/// A half-open stretch of a video: from the first frame at or behind `start`, up to and without the first
/// frame at or behind `end`. Written `a..b`, `a..`, `..b` or `..`; the default is everything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameRange {
    /// The first position that belongs to it; the video's start if none.
    pub start: Option<Position>,
    /// The first position behind it; the video's end if none.
    pub end: Option<Position>,
}

impl FrameRange {
    /// Refuses ranges that are empty whatever the video is.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad_time = |p: Option<Position>| matches!(p, Some(Position::Time(t)) if !t.is_finite());
        let empty = match (self.start, self.end) {
            (Some(Position::Frame(a)), Some(Position::Frame(b))) => a >= b,
            (Some(Position::Time(a)), Some(Position::Time(b))) => a >= b,
            (_, Some(Position::Frame(0))) => true,
            _ => false,
        };
        if empty || bad_time(self.start) || bad_time(self.end) {
            return Err(Error::EmptyRange {
                range: self.to_string(),
                found: String::new(),
            });
        }
        Ok(())
    }
}

impl FromStr for FrameRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (start, end) = text.split_once("..").ok_or_else(|| Error::InvalidRange {
            text: text.to_owned(),
            expected: "range",
            hint: "write it as start..end, start.. or ..end, for example 0..120 or 1.5s..4s (the end is not included)"
                .to_owned(),
        })?;
        let side = |side: &str| match side.trim() {
            "" => Ok(None),
            position => position.parse().map(Some),
        };
        let range = Self {
            start: side(start)?,
            end: side(end)?,
        };
        range.check()?;
        Ok(range)
    }
}

impl fmt::Display for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(start) = self.start {
            write!(f, "{start}")?;
        }
        f.write_str("..")?;
        if let Some(end) = self.end {
            write!(f, "{end}")?;
        }
        Ok(())
    }
}
