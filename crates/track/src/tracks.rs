//! The answer: where every point is on every frame.

use ndarray::{Array2, Array3};
use serde::{Deserialize, Serialize};
use track_model::{ModelKind, RawTracks};

use crate::{Error, Provenance, QueryPoint, Result};

/// How a position came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It was asked for: this is the point's own frame.
    Query,
    /// The model followed the point here.
    Tracked,
    /// The model does not track this frame; the numbers mean nothing and the point is not visible.
    NotTracked,
}

impl Status {
    /// The name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Tracked => "tracked",
            Self::NotTracked => "not_tracked",
        }
    }
}

/// Where `N` points are on `T` frames.
///
/// Positions are raster positions of the displayed picture: x to the right, y down, (0, 0) the upper-left
/// corner of the upper-left pixel, a pixel's centre at +0.5. They are never clamped to the picture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Tracks {
    /// `[T, N, 2]`: x, y in pixels. On its own frame a point is exactly where it was asked for.
    pub positions: Array3<f32>,
    /// `[T, N]`: whether the point is seen. True on its own frame; elsewhere where the confidence reaches
    /// [`Provenance::visibility_threshold`].
    pub visible: Array2<bool>,
    /// `[T, N]`: (1 − σ(occlusion))·(1 − σ(expected_dist)), from 0 to 1.
    pub confidence: Array2<f32>,
    /// `[T, N]`: the model's logit of the point being hidden.
    pub occlusion: Array2<f32>,
    /// `[T, N]`: the model's logit of its position being far off.
    pub expected_dist: Array2<f32>,
    /// `[T, N]`: how each position came about.
    pub status: Array2<Status>,
    /// `[T]`: presentation times in seconds.
    pub times: Vec<f64>,
    /// `[T]`: index of each frame in its source, counted from 0.
    pub frame_indices: Vec<u64>,
    /// `[N]`: the points as they were asked for.
    pub queries: Vec<QueryPoint>,
    /// What decided the result.
    pub provenance: Provenance,
    /// What was found wrong with the clip without ending the run.
    pub warnings: Vec<String>,
}

/// The confidence from which a point counts as visible.
pub(crate) fn visibility_threshold(kind: ModelKind) -> f32 {
    match kind {
        ModelKind::LocoTrackSmall | ModelKind::LocoTrackBase => 0.5,
        // A model that arrives here without its own threshold is treated like the others.
        _ => 0.5,
    }
}

/// (1 − σ(occlusion))·(1 − σ(expected distance)), written so that large logits overflow to 0, not to NaN.
fn confidence(occlusion: f32, expected_dist: f32) -> f32 {
    1.0 / (1.0 + occlusion.exp()) / (1.0 + expected_dist.exp())
}

impl Tracks {
    /// Puts the model's answer, `[N, T]`, into the order of the outputs and decides what is visible.
    pub(crate) fn assemble(
        raw: &RawTracks,
        queries: Vec<QueryPoint>,
        stamps: Vec<(u64, f64)>,
        provenance: Provenance,
        warnings: Vec<String>,
    ) -> Result<Self> {
        let (points, frames) = (queries.len(), stamps.len());
        let model = track_model::Error::from;
        let flat = |t: &candle_core::Tensor| t.flatten_all()?.to_vec1::<f32>();
        let shape = |e: ndarray::ShapeError| Error::Internal(format!("the model's answer: {e}"));
        let plane = |t: &candle_core::Tensor| -> Result<Array2<f32>> {
            let by_point =
                Array2::from_shape_vec((points, frames), flat(t).map_err(model)?).map_err(shape)?;
            Ok(by_point.reversed_axes().as_standard_layout().into_owned())
        };
        let by_point = flat(&raw.positions).map_err(model)?;
        let by_point = Array3::from_shape_vec((points, frames, 2), by_point).map_err(shape)?;
        let by_frame = by_point.permuted_axes([1, 0, 2]);
        let mut positions = by_frame.as_standard_layout().into_owned();

        let occlusion = plane(&raw.occlusion)?;
        let expected_dist = plane(&raw.expected_dist)?;
        let confidence = ndarray::Zip::from(&occlusion)
            .and(&expected_dist)
            .map_collect(|&o, &e| confidence(o, e));
        let threshold = provenance.visibility_threshold;
        let mut visible = confidence.mapv(|c| c >= threshold);
        let mut status = Array2::from_elem((frames, points), Status::Tracked);
        for (n, query) in queries.iter().enumerate() {
            let own = query.frame(frames);
            positions[[own, n, 0]] = query.x;
            positions[[own, n, 1]] = query.y;
            visible[[own, n]] = true;
            status[[own, n]] = Status::Query;
        }
        let (frame_indices, times) = stamps.into_iter().unzip();
        Ok(Self {
            positions,
            visible,
            confidence,
            occlusion,
            expected_dist,
            status,
            times,
            frame_indices,
            queries,
            provenance,
            warnings,
        })
    }

    /// Number of frames, `T`.
    pub fn frames(&self) -> usize {
        self.times.len()
    }

    /// Number of points, `N`.
    pub fn points(&self) -> usize {
        self.queries.len()
    }

    /// Share of points and frames that are visible, from 0 to 1.
    pub fn visible_share(&self) -> f64 {
        let visible = self.visible.iter().filter(|v| **v).count();
        visible as f64 / self.visible.len().max(1) as f64
    }

    /// Where point `n` is on frame `t` (both counted from 0), x and y in pixels; `None` outside the tracks.
    pub fn position(&self, t: usize, n: usize) -> Option<(f32, f32)> {
        Some((
            *self.positions.get([t, n, 0])?,
            *self.positions.get([t, n, 1])?,
        ))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use candle_core::{Device, Tensor};
    use proptest::prelude::*;

    use super::*;
    use crate::{Clip, WeightsRecord};

    pub(crate) fn provenance() -> Provenance {
        let clip = Clip::from_source("test clip", (64, 48), 10.0, std::iter::empty).unwrap();
        Provenance {
            program: "track 0.0.0".into(),
            model: "locotrack-small".into(),
            weights: WeightsRecord {
                name: "none".into(),
                sha256: "0".repeat(64),
            },
            precision: "f32".into(),
            device: "cpu".into(),
            resolution: "model".into(),
            visibility_threshold: 0.5,
            clip: clip.info(),
            ffmpeg: None,
        }
    }

    /// Two points on three frames; the first is asked for on frame 0, the second on frame 2.
    pub(crate) fn tracks() -> Tracks {
        let tensor = |values: &[f32], shape: &[usize]| {
            Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
        };
        let raw = RawTracks {
            positions: tensor(
                &[1., 2., 3., 4., 5., 6., 10., 20., 30., 40., -50., 60.25],
                &[2, 3, 2],
            ),
            occlusion: tensor(&[-9., -9., 9., 9., -9., 9.], &[2, 3]),
            expected_dist: tensor(&[-9., -9., -9., -9., 9., f32::NAN], &[2, 3]),
        };
        Tracks::assemble(
            &raw,
            vec![
                QueryPoint::new(0.0, 1.5, 2.5),
                QueryPoint::new(2.4, 7.0, 8.0).labelled("a \"b\", c"),
            ],
            vec![(5, 0.5), (6, 0.6), (7, 0.7)],
            provenance(),
            vec![],
        )
        .unwrap()
    }

    #[test]
    fn frames_come_first_and_a_point_is_where_it_was_asked_for() {
        let tracks = tracks();
        assert_eq!(tracks.positions.dim(), (3, 2, 2));
        assert_eq!(tracks.position(0, 0), Some((1.5, 2.5)));
        assert_eq!(tracks.position(1, 0), Some((3.0, 4.0)));
        assert_eq!(tracks.position(0, 1), Some((10.0, 20.0)));
        assert_eq!(tracks.position(2, 1), Some((7.0, 8.0)));
        assert_eq!(tracks.position(3, 0), None);
        assert_eq!(tracks.status[[2, 1]], Status::Query);
        assert_eq!(tracks.status[[2, 0]], Status::Tracked);
        let visible: Vec<_> = tracks.visible.iter().copied().collect();
        // Hidden: occluded, far off. Visible on its own frame whatever the logits.
        assert_eq!(visible, [true, false, true, false, false, true]);
        assert!((tracks.visible_share() - 0.5).abs() < 1e-12);
        assert_eq!(tracks.occlusion[[0, 1]], 9.0);
    }

    proptest! {
        #[test]
        fn confidence_is_a_product_of_probabilities(o in -200f32..200.0, e in -200f32..200.0) {
            let sigma = |v: f32| 1.0 / (1.0 + (-f64::from(v)).exp());
            let expected = (1.0 - sigma(o)) * (1.0 - sigma(e));
            prop_assert!((f64::from(confidence(o, e)) - expected).abs() < 1e-6);
        }
    }
}
