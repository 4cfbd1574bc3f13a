//! A check for people, as a table, and for machines, as JSON.

use std::fmt;

use serde::Serialize;

use super::check::{Change, Check, ClipCheck, Outcome, Verdict};
use super::differences::{Differences, Worst};
use super::index::Recorded;
use super::tolerance::Tolerance;

/// The schema's name and version of [`Check::to_json`].
const SCHEMA: &str = "track-golden-check/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    verdict: Verdict,
    /// The precision whose tolerance holds.
    precision: &'static str,
    tolerance: &'a Tolerance,
    changed: Vec<Change>,
    recorded: &'a Recorded,
    now: &'a Recorded,
    clips: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    verdict: Verdict,
    frames: usize,
    points: usize,
    /// `null` for a clip that was not checked.
    differences: Option<&'a Differences>,
    worst: &'a [Worst],
    notes: &'a [String],
    error: Option<String>,
}

impl<'a> Row<'a> {
    fn of(clip: &'a ClipCheck) -> Self {
        let (differences, worst, notes, error) = match &clip.outcome {
            Outcome::Compared {
                differences,
                worst,
                notes,
                ..
            } => (Some(differences), worst.as_slice(), notes.as_slice(), None),
            Outcome::Failed(e) => (None, [].as_slice(), [].as_slice(), Some(e.to_string())),
        };
        Self {
            name: &clip.name,
            verdict: clip.verdict(),
            frames: clip.frames,
            points: clip.points,
            differences,
            worst,
            notes,
            error,
        }
    }
}

impl Check {
    /// The check as JSON, schema `track-golden-check/1`.
    ///
    /// # Errors
    /// None that is known; serialisation is not promised to succeed.
    pub fn to_json(&self) -> crate::Result<String> {
        let document = Document {
            schema: SCHEMA,
            verdict: self.verdict(),
            precision: self.precision.name(),
            tolerance: &self.tolerance,
            changed: self.changed(),
            recorded: &self.recorded,
            now: &self.now,
            clips: self.clips.iter().map(Row::of).collect(),
        };
        serde_json::to_string_pretty(&document)
            .map_err(|e| crate::Error::Internal(format!("the check as JSON: {e}")))
    }
}

impl Verdict {
    /// A word or two for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Within => "within",
            Self::Moved => "MOVED",
            Self::Unchecked => "not checked",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.clips.iter().map(|clip| clip.name.chars().count());
        let allowed = format!("allowed ({})", self.precision);
        let width = names.max().unwrap_or(0).max(allowed.chars().count());
        writeln!(
            f,
            "{:width$}  {:>6}  {:>6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  verdict",
            "clip", "frames", "points", "median px", "p99 px", "max px", "logit", "visible"
        )?;
        for clip in &self.clips {
            let (name, frames, points) = (&clip.name, clip.frames, clip.points);
            write!(f, "{name:width$}  {frames:>6}  {points:>6}  ")?;
            match &clip.outcome {
                Outcome::Compared { differences: d, .. } => write!(
                    f,
                    "{:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
                    number(d.median_px),
                    number(d.p99_px),
                    number(d.max_px),
                    number(d.logit()),
                    share(d.visible_equal)
                )?,
                Outcome::Failed(_) => write!(
                    f,
                    "{:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
                    "–", "–", "–", "–", "–"
                )?,
            }
            writeln!(f, "  {}", clip.verdict().name())?;
        }
        let t = &self.tolerance;
        writeln!(
            f,
            "{allowed:width$}  {:>6}  {:>6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
            "",
            "",
            number(t.median_px),
            number(t.p99_px),
            "",
            t.logit.map(number).unwrap_or_default(),
            share(t.visible_equal)
        )?;
        self.details(f)
    }
}

impl Check {
    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed: Vec<_> = self
            .changed()
            .iter()
            .map(|c| format!("{} {} → {}", c.what, c.recorded, c.now))
            .collect();
        match changed.is_empty() {
            true => writeln!(f, "changed since recording: nothing that is recorded")?,
            false => writeln!(f, "changed since recording: {}", changed.join("; "))?,
        }
        for clip in &self.clips {
            match &clip.outcome {
                Outcome::Failed(e) => writeln!(f, "{}: {e}", clip.name)?,
                Outcome::Compared { worst, notes, .. } => {
                    if !notes.is_empty() {
                        writeln!(f, "{}: {}", clip.name, notes.join("; "))?;
                    }
                    let named: Vec<_> = worst.iter().map(place).collect();
                    if !named.is_empty() {
                        writeln!(f, "{}: furthest {}", clip.name, named.join("; "))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn place(w: &Worst) -> String {
    format!(
        "point {} on frame {} by {} px, from ({:.2}, {:.2}) to ({:.2}, {:.2})",
        w.point,
        w.frame,
        number(w.distance_px),
        w.recorded[0],
        w.recorded[1],
        w.now[0],
        w.now[1]
    )
}

/// Three digits that count; tiny numbers with an exponent.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if !v.is_finite() => "∞".to_owned(),
        v if v < 1e-4 => format!("{v:.1e}"),
        v if v < 1.0 => {
            let text = format!("{v:.4}");
            text.trim_end_matches('0').to_owned()
        }
        v if v < 100.0 => format!("{v:.2}"),
        v => format!("{v:.0}"),
    }
}

/// A share in per cent; never rounded up to all.
fn share(value: f64) -> String {
    format!("{:.2} %", (value * 1e4).floor() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_shares_are_not_rounded_up() {
        for (value, text) in [
            (0.0, "0"),
            (1.2e-6, "1.2e-6"),
            (0.001, "0.001"),
            (0.02, "0.02"),
            (0.5, "0.5"),
            (12.345, "12.35"),
            (1234.5, "1234"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(share(1.0), "100.00 %");
        assert_eq!(share(0.99999), "99.99 %");
    }
}
