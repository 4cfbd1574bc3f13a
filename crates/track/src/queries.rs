//! The points to follow, as they are asked for and as they turn out once the clip is known.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, Mask, Result, query_file};

/// One point to follow: where it is on one frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct QueryPoint {
    /// Frame, counted from 0 at the first frame of the clip as it was opened (so after `start`). A fraction
    /// looks between two frames.
    pub t: f32,
    /// Raster position from the left edge of the displayed picture, in pixels: 0 is the left edge of the
    /// left-most pixel, so that pixel's centre lies at 0.5.
    pub x: f32,
    /// Raster position from the top edge, in pixels.
    pub y: f32,
    /// A name for people, carried into the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl QueryPoint {
    /// A point without a label.
    pub fn new(t: f32, x: f32, y: f32) -> Self {
        Self {
            t,
            x,
            y,
            label: None,
        }
    }

    /// The same point with a label.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The frame that is the point's own in a clip of `frames` frames: `t` rounded, halves to even.
    pub fn frame(&self, frames: usize) -> usize {
        // A float to integer cast saturates, so that a negative t lands on the first frame.
        (self.t.round_ties_even() as usize).min(frames.saturating_sub(1))
    }
}

impl From<(f32, f32, f32)> for QueryPoint {
    /// From (t, x, y).
    fn from((t, x, y): (f32, f32, f32)) -> Self {
        Self::new(t, x, y)
    }
}

/// Which points to follow. Grids and masks become points when the size of the clip is known.
///
/// ```
/// use track::Queries;
/// let grid = Queries::grid(10);
/// let clicked = Queries::points([(0.0, 12.5, 30.0), (7.0, 100.0, 64.0)]);
/// let both = clicked.and(grid.on_frame(3.0));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queries {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Points(Vec<QueryPoint>),
    Grid { n: usize, t: f32 },
    Mask { mask: Mask, n: usize, t: f32 },
}

impl Queries {
    /// An `n` × `n` grid over the whole picture, on frame 0: the centres of its cells,
    /// x = (i + 0.5)·W/n and y = (j + 0.5)·H/n, row by row.
    pub fn grid(n: usize) -> Self {
        Self {
            parts: vec![Part::Grid { n, t: 0.0 }],
        }
    }

    /// Points, each on its own frame: (t, x, y) or [`QueryPoint`].
    pub fn points<P: Into<QueryPoint>>(points: impl IntoIterator<Item = P>) -> Self {
        Self {
            parts: vec![Part::Points(points.into_iter().map(Into::into).collect())],
        }
    }

    /// Points inside a mask, on frame 0: an `n` × `n` grid over the bounding box of the mask's pixels, kept
    /// where the mask is set; when that keeps nothing, the mask's pixel nearest its centroid.
    pub fn mask(mask: Mask, n: usize) -> Self {
        Self {
            parts: vec![Part::Mask { mask, n, t: 0.0 }],
        }
    }

    /// Reads points from a file: CSV (a header with the fields `t`, `x`, `y` in any order and an optional
    /// `label`) or JSON (an array of objects with these names). The extension decides which.
    ///
    /// # Errors
    /// The file cannot be read, is neither, lacks a field, or holds no point.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        query_file::read(path.as_ref()).map(Self::points)
    }

    /// Moves grids and masks to frame `t`. Points keep their own frames.
    #[must_use]
    pub fn on_frame(mut self, t: f32) -> Self {
        for part in &mut self.parts {
            match part {
                Part::Points(_) => {}
                Part::Grid { t: on, .. } | Part::Mask { t: on, .. } => *on = t,
            }
        }
        self
    }

    /// These points, then those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// The points in a clip of this size, in order; every one lies in its picture. Frames are not checked
    /// here because a clip's length may be known only at its end: see [`Queries::check_frames`].
    ///
    /// `width`, `height`: of the displayed picture, in pixels.
    ///
    /// # Errors
    /// A point that is not a number, outside the picture or before the clip; a grid without cells; a mask of
    /// another size or without a set pixel; no point at all.
    pub fn resolve(&self, width: u32, height: u32) -> Result<Vec<QueryPoint>> {
        let mut points = Vec::new();
        for part in &self.parts {
            match part {
                Part::Points(given) => points.extend(given.iter().cloned()),
                Part::Grid { n, t } => {
                    cells(*n)?;
                    let place = |i: usize, side: u32| (i as f32 + 0.5) * side as f32 / *n as f32;
                    points.extend(
                        (0..n * n).map(|k| {
                            QueryPoint::new(*t, place(k % n, width), place(k / n, height))
                        }),
                    );
                }
                Part::Mask { mask, n, t } => {
                    cells(*n)?;
                    let inside = mask.points(*n, width, height)?;
                    points.extend(inside.into_iter().map(|(x, y)| QueryPoint::new(*t, x, y)));
                }
            }
        }
        if points.is_empty() {
            return Err(Error::NoPoints);
        }
        for (index, point) in points.iter().enumerate() {
            check_place(index, point, width, height)?;
        }
        Ok(points)
    }

    /// Refuses points on frames that a clip of `frames` frames does not have.
    ///
    /// # Errors
    /// The first such point.
    pub fn check_frames(points: &[QueryPoint], frames: usize) -> Result<()> {
        let last = frames.saturating_sub(1);
        let beyond = |p: &QueryPoint| p.t > last as f32;
        match points.iter().enumerate().find(|(_, p)| beyond(p)) {
            None => Ok(()),
            Some((index, point)) => Err(refused(
                index,
                point,
                format!("the clip's frames are numbered 0 to {last}; choose one of them"),
            )),
        }
    }
}

/// The most cells along one side of a grid: a point per pixel of a large picture is a slip, not a wish.
const MOST_CELLS: usize = 1000;

fn cells(n: usize) -> Result<()> {
    if (1..=MOST_CELLS).contains(&n) {
        Ok(())
    } else {
        Err(Error::Request(format!(
            "a grid of {n}×{n} points cannot be laid; choose 1 to {MOST_CELLS} points along a side"
        )))
    }
}

fn check_place(index: usize, point: &QueryPoint, width: u32, height: u32) -> Result<()> {
    let inside = |v: f32, side: u32| (0.0..=side as f32).contains(&v);
    if !(point.t.is_finite() && point.x.is_finite() && point.y.is_finite()) {
        let reason = "t, x and y must be finite numbers";
        return Err(refused(index, point, reason.to_owned()));
    }
    if point.t < 0.0 {
        let reason = "the clip's frames are numbered from 0; choose a frame of the clip";
        return Err(refused(index, point, reason.to_owned()));
    }
    if !inside(point.x, width) || !inside(point.y, height) {
        return Err(refused(
            index,
            point,
            format!("the picture is {width}×{height}; choose x in 0..{width} and y in 0..{height}"),
        ));
    }
    Ok(())
}

fn refused(index: usize, point: &QueryPoint, reason: String) -> Error {
    Error::Point {
        index,
        point: format!("t {}, x {}, y {}", point.t, point.x, point.y),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_grid_is_the_centres_of_its_cells_row_by_row() {
        let points = Queries::grid(2).on_frame(3.0).resolve(100, 40).unwrap();
        let places: Vec<_> = points.iter().map(|p| (p.t, p.x, p.y)).collect();
        assert_eq!(
            places,
            [
                (3.0, 25.0, 10.0),
                (3.0, 75.0, 10.0),
                (3.0, 25.0, 30.0),
                (3.0, 75.0, 30.0)
            ]
        );
    }

    #[test]
    fn the_border_belongs_to_the_picture_and_what_lies_behind_it_does_not() {
        for corner in [(0.0, 0.0, 0.0), (0.0, 64.0, 48.0)] {
            assert!(Queries::points([corner]).resolve(64, 48).is_ok());
        }
        let error = Queries::points([(0.0, 1.0, 1.0), (0.0, 64.5, 1.0)])
            .resolve(64, 48)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "point 1 (t 0, x 64.5, y 1) is unusable: the picture is 64×48; choose x in 0..64 and y in 0..48"
        );
        for bad in [
            (f32::NAN, 1.0, 1.0),
            (0.0, f32::INFINITY, 1.0),
            (-1.0, 1.0, 1.0),
        ] {
            assert!(Queries::points([bad]).resolve(64, 48).is_err());
        }
    }

    #[test]
    fn frames_beyond_the_clip_are_refused_by_index() {
        let points = [
            QueryPoint::new(4.0, 0.0, 0.0),
            QueryPoint::new(5.0, 0.0, 0.0),
        ];
        assert!(Queries::check_frames(&points, 6).is_ok());
        let error = Queries::check_frames(&points, 5).unwrap_err();
        assert!(error.to_string().starts_with("point 1 (t 5,"), "{error}");
        assert!(error.to_string().contains("0 to 4"), "{error}");
    }

    #[test]
    fn nothing_to_follow_is_an_error() {
        assert!(matches!(
            Queries::default().resolve(8, 8),
            Err(Error::NoPoints)
        ));
        assert!(Queries::grid(0).resolve(8, 8).is_err());
        assert!(Queries::grid(usize::MAX).resolve(8, 8).is_err());
    }

    #[test]
    fn own_frames_round_half_to_even_and_stay_in_the_clip() {
        let frame = |t: f32| QueryPoint::new(t, 0.0, 0.0).frame(4);
        assert_eq!([0.5, 1.5, 2.5, 2.6, 9.0].map(frame), [0, 2, 2, 3, 3],);
    }

    proptest! {
        #[test]
        fn grid_points_lie_strictly_inside(n in 1usize..40, w in 1u32..5000, h in 1u32..5000) {
            let points = Queries::grid(n).resolve(w, h).unwrap();
            prop_assert_eq!(points.len(), n * n);
            for p in points {
                prop_assert!(p.x > 0.0 && p.x < w as f32 && p.y > 0.0 && p.y < h as f32);
            }
        }
    }
}
