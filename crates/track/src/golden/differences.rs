//! How far two sets of tracks are apart.

use serde::Serialize;

use super::numbers::Numbers;
use super::tolerance::Tolerance;

/// Differences of one clip. A number that is not finite on one side counts as infinitely far off, which JSON
/// shows as `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Differences {
    /// Whether every number is the same to the last bit.
    pub identical: bool,
    /// Median over points and frames of the distance between positions, in pixels of the clip.
    pub median_px: f64,
    /// 99th percentile of the same.
    pub p99_px: f64,
    /// Largest distance.
    pub max_px: f64,
    /// Largest change of the logit of being hidden.
    pub occlusion: f64,
    /// Largest change of the logit of being far off.
    pub expected_dist: f64,
    /// Share of points and frames, 0 to 1, with the same visibility.
    pub visible_equal: f64,
}

/// A point where it moved furthest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Worst {
    /// The point, counted from 0.
    pub point: usize,
    /// The frame, counted from the clip's first.
    pub frame: usize,
    /// How far it moved there, in pixels.
    pub distance_px: f64,
    /// x, y as recorded.
    pub recorded: [f32; 2],
    /// x, y as found now.
    pub now: [f32; 2],
}

/// Points that are named.
const NAMED: usize = 3;

/// Compares on the frames that both sides have; they have the same points.
pub(crate) fn between(recorded: &Numbers, now: &Numbers) -> (Differences, Vec<Worst>) {
    let (frames, points) = (recorded.frames.min(now.frames), recorded.points);
    let mut worst: Vec<Worst> = Vec::with_capacity(points);
    let mut distances = Vec::with_capacity(frames * points);
    for n in 0..points {
        let mut furthest: Option<Worst> = None;
        for t in 0..frames {
            let (a, b) = (recorded.position(t, n), now.position(t, n));
            let distance_px = distance(a, b);
            distances.push(distance_px);
            if furthest
                .as_ref()
                .is_none_or(|w| w.distance_px < distance_px)
            {
                furthest = Some(Worst {
                    point: n,
                    frame: t,
                    distance_px,
                    recorded: a,
                    now: b,
                });
            }
        }
        worst.extend(furthest.filter(|w| w.distance_px > 0.0));
    }
    distances.sort_by(f64::total_cmp);
    let at = |share: f64| match distances.len() {
        0 => 0.0,
        n => distances[((n - 1) as f64 * share) as usize],
    };
    worst.sort_by(|a, b| b.distance_px.total_cmp(&a.distance_px));
    worst.truncate(NAMED);
    let cells = frames * points;
    let same = |(a, b): &(&bool, &bool)| a == b;
    let equal = recorded.visible.iter().zip(&now.visible).take(cells);
    let differences = Differences {
        identical: recorded == now,
        median_px: at(0.5),
        p99_px: at(0.99),
        max_px: at(1.0),
        occlusion: largest(&recorded.occlusion, &now.occlusion, cells),
        expected_dist: largest(&recorded.expected_dist, &now.expected_dist, cells),
        visible_equal: equal.filter(same).count() as f64 / cells.max(1) as f64,
    };
    (differences, worst)
}

impl Differences {
    /// Largest change of either logit.
    pub fn logit(&self) -> f64 {
        self.occlusion.max(self.expected_dist)
    }

    /// Whether all of them lie within the tolerance.
    pub fn within(&self, tolerance: &Tolerance) -> bool {
        self.median_px <= tolerance.median_px
            && self.p99_px <= tolerance.p99_px
            && tolerance.logit.is_none_or(|most| self.logit() <= most)
            && self.visible_equal >= tolerance.visible_equal
    }
}

fn distance(a: [f32; 2], b: [f32; 2]) -> f64 {
    let apart = |k: usize| f64::from(a[k]) - f64::from(b[k]);
    finite_or_far(apart(0).hypot(apart(1)))
}

fn largest(a: &[f32], b: &[f32], cells: usize) -> f64 {
    let pairs = a.iter().zip(b).take(cells);
    pairs
        .map(|(a, b)| finite_or_far((f64::from(*a) - f64::from(*b)).abs()))
        .fold(0.0, f64::max)
}

fn finite_or_far(difference: f64) -> f64 {
    if difference.is_nan() {
        f64::INFINITY
    } else {
        difference
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use track_model::Precision;

    use super::super::numbers::tests::numbers;
    use super::*;

    #[test]
    fn the_same_numbers_are_identical() {
        let (same, worst) = between(&numbers(), &numbers());
        assert!(same.identical && worst.is_empty());
        assert_eq!(
            (same.max_px, same.logit(), same.visible_equal),
            (0.0, 0.0, 1.0)
        );
        assert!(same.within(&Tolerance {
            median_px: 0.0,
            p99_px: 0.0,
            logit: Some(0.0),
            visible_equal: 1.0
        }));
    }

    #[test]
    fn what_moved_is_measured_and_named() {
        let mut now = numbers();
        // Point 1 on frame 2 by (3, 4), point 0 on frame 1 by 1; one logit; one visibility.
        now.positions[10] += 3.0;
        now.positions[11] += 4.0;
        now.positions[4] -= 1.0;
        now.expected_dist[3] += 0.5;
        now.visible[5] = false;
        let (moved, worst) = between(&numbers(), &now);
        assert_eq!((moved.median_px, moved.max_px), (0.0, 5.0));
        assert_eq!((moved.occlusion, moved.expected_dist), (0.0, 0.5));
        assert!((moved.visible_equal - 5.0 / 6.0).abs() < 1e-12);
        let named: Vec<_> = worst
            .iter()
            .map(|w| (w.point, w.frame, w.distance_px))
            .collect();
        assert_eq!(named, [(1, 2, 5.0), (0, 1, 1.0)]);
        assert!(!moved.within(&Tolerance::of(Precision::F32)));
    }

    #[test]
    fn each_limit_counts_by_itself() {
        let found = Differences {
            identical: false,
            median_px: 1.0,
            p99_px: 2.0,
            max_px: 9.0,
            occlusion: 3.0,
            expected_dist: 4.0,
            visible_equal: 0.9,
        };
        let just = Tolerance {
            median_px: 1.0,
            p99_px: 2.0,
            logit: Some(4.0),
            visible_equal: 0.9,
        };
        assert!(found.within(&just));
        assert!(!found.within(&Tolerance {
            median_px: 0.99,
            ..just
        }));
        assert!(!found.within(&Tolerance {
            p99_px: 1.99,
            ..just
        }));
        assert!(!found.within(&Tolerance {
            logit: Some(3.99),
            ..just
        }));
        assert!(!found.within(&Tolerance {
            visible_equal: 0.91,
            ..just
        }));
        assert!(found.within(&Tolerance {
            logit: None,
            ..just
        }));
    }

    #[test]
    fn a_number_that_is_none_is_infinitely_far() {
        let mut now = numbers();
        now.positions[0] = f32::NAN;
        now.occlusion[1] = f32::NAN;
        let (moved, worst) = between(&numbers(), &now);
        assert_eq!(
            (moved.max_px, moved.occlusion),
            (f64::INFINITY, f64::INFINITY)
        );
        assert_eq!((worst[0].point, worst[0].frame), (0, 0));
        assert!(serde_json::to_value(&moved).unwrap()["max_px"].is_null());
    }

    proptest! {
        #[test]
        fn a_shift_of_everything_is_every_percentile(dx in -50f32..50.0) {
            let mut now = numbers();
            now.positions.iter_mut().step_by(2).for_each(|x| *x += dx);
            let (moved, _) = between(&numbers(), &now);
            for found in [moved.median_px, moved.p99_px, moved.max_px] {
                prop_assert!((found - f64::from(dx.abs())).abs() < 1e-4);
            }
        }
    }
}
