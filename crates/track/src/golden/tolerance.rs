//! How far tracks may move before a check calls it a change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use track_model::Precision;

/// What a clip's differences are held to. All of them must hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// Median over points and frames of the distance between positions, in pixels of the clip.
    pub median_px: f64,
    /// 99th percentile of the same.
    pub p99_px: f64,
    /// Largest change of a logit; `None` where logits are reported and not judged.
    pub logit: Option<f64>,
    /// Share of points and frames, 0 to 1, whose visibility must be the same.
    pub visible_equal: f64,
}

impl Tolerance {
    /// What is allowed where one side was computed in `precision` and the other in it or a more exact one.
    ///
    /// - f32: processors and devices sum in another order, and FFmpeg's versions may round a colour differently.
    ///   Two implementations of one model on the same pixels differ by far less: 4e-5 px at the 99th percentile.
    /// - tf32 and f16 have the same 11 bits of mantissa in their products. Logits are not judged: far from the
    ///   threshold they may move by whole units and decide nothing, and near it the visibility says so.
    /// - bf16 has 8 bits, an eighth of the resolution, and about six times the distance is allowed.
    pub fn of(precision: Precision) -> Self {
        let (median_px, p99_px, logit, visible_equal) = match precision {
            Precision::F32 => (1e-3, 0.02, Some(0.05), 0.999),
            Precision::Bf16 => (0.3, 3.0, None, 0.98),
            // A precision that arrives without its own tolerance is treated like the two of 11 bits.
            _ => (0.05, 0.5, None, 0.995),
        };
        Self {
            median_px,
            p99_px,
            logit,
            visible_equal,
        }
    }

    /// Says what is wrong with a tolerance that somebody wrote.
    pub(crate) fn check(&self) -> Result<(), String> {
        let distances = [
            ("median_px", Some(self.median_px)),
            ("p99_px", Some(self.p99_px)),
            ("logit", self.logit),
        ];
        for (name, value) in distances {
            if value.is_some_and(|v| !(v.is_finite() && v >= 0.0)) {
                return Err(format!("the tolerance {name} must be a number from 0"));
            }
        }
        if !(0.0..=1.0).contains(&self.visible_equal) {
            return Err("the tolerance visible_equal must be a share from 0 to 1".to_owned());
        }
        Ok(())
    }
}

/// The tolerances of a folder, by the name of the less exact precision of the two compared.
pub type Tolerances = BTreeMap<String, Tolerance>;

/// The defaults, for people to change in `golden.json`.
pub(crate) fn defaults() -> Tolerances {
    Precision::ALL
        .into_iter()
        .map(|p| (p.name().to_owned(), Tolerance::of(p)))
        .collect()
}

/// The less exact of two precisions.
pub(crate) fn less_exact(a: Precision, b: Precision) -> Precision {
    let rank = |p| Precision::ALL.iter().position(|&other| other == p);
    if rank(a) >= rank(b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_exact_precisions_allow_more() {
        let mut last = Tolerance::of(Precision::F32);
        for precision in Precision::ALL {
            let tolerance = Tolerance::of(precision);
            assert!(tolerance.check().is_ok());
            assert!(tolerance.median_px >= last.median_px && tolerance.p99_px >= last.p99_px);
            assert!(tolerance.visible_equal <= last.visible_equal);
            last = tolerance;
        }
        assert_eq!(
            less_exact(Precision::F16, Precision::F32),
            less_exact(Precision::F32, Precision::F16)
        );
        assert_eq!(less_exact(Precision::F16, Precision::Bf16), Precision::Bf16);
    }

    #[test]
    fn tolerances_that_allow_nothing_sensible_are_refused() {
        let good = Tolerance::of(Precision::F32);
        for bad in [
            Tolerance {
                median_px: -1.0,
                ..good
            },
            Tolerance {
                p99_px: f64::NAN,
                ..good
            },
            Tolerance {
                logit: Some(f64::INFINITY),
                ..good
            },
            Tolerance {
                visible_equal: 99.9,
                ..good
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
