//! A picture that says where points are wanted.

use std::path::Path;

use track_video::{OpenOptions, SourceKind};

use crate::error::os_reason;
use crate::{Error, Result};

/// The brightness from which a picture's pixel counts as set: half of the range.
const SET_FROM: u8 = 128;

/// Which pixels of a picture are meant: one value per pixel, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    width: u32,
    height: u32,
    set: Vec<bool>,
    /// What messages call it.
    name: String,
}

impl Mask {
    /// A mask from memory. `set`: `[height, width]`, row by row.
    ///
    /// # Errors
    /// The number of values is not width × height, or there are none.
    pub fn new(width: u32, height: u32, set: Vec<bool>) -> Result<Self> {
        let expected = width as usize * height as usize;
        if expected == 0 || set.len() != expected {
            return Err(Error::Request(format!(
                "a mask of {width}×{height} needs {expected} values and at least one, but {} were given",
                set.len()
            )));
        }
        Ok(Self {
            width,
            height,
            set,
            name: "the mask".to_owned(),
        })
    }

    /// Reads a still picture: a pixel is set where its brightest channel is at least 128 of 255.
    ///
    /// # Errors
    /// The file cannot be read or is not one still picture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut reader = track_video::open(path, &OpenOptions::default())
            .map_err(|e| Error::input(path, not_a_mask(&e)))?;
        if reader.info().kind != SourceKind::Still {
            let reason =
                "a mask must be one still picture, such as a PNG; found something that moves";
            return Err(Error::input(path, reason));
        }
        let Some(frame) = reader.next().transpose()? else {
            return Err(Error::input(path, "the mask has no picture in it"));
        };
        let set = frame
            .data
            .chunks_exact(3)
            .map(|rgb| rgb.iter().any(|&c| c >= SET_FROM))
            .collect();
        let mut mask = Self::new(frame.width, frame.height, set)?;
        mask.name = format!("the mask {}", path.display());
        Ok(mask)
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// An `n` × `n` grid over the bounding box of the set pixels, kept where the mask is set: raster
    /// positions x, y. Never empty: the set pixel nearest the centroid stands in for a grid that misses.
    pub(crate) fn points(&self, n: usize, width: u32, height: u32) -> Result<Vec<(f32, f32)>> {
        if (self.width, self.height) != (width, height) {
            return Err(Error::Request(format!(
                "{} is {}×{}, but the picture is {width}×{height}; give a mask of the picture's size",
                self.name, self.width, self.height
            )));
        }
        let w = width as usize;
        let pixels = || {
            let set = self.set.iter().enumerate().filter(|(_, set)| **set);
            set.map(move |(at, _)| (at % w, at / w))
        };
        let Some(first) = pixels().next() else {
            return Err(Error::Request(format!(
                "{} is black everywhere; paint the pixels to be followed white",
                self.name
            )));
        };
        let start = (first.0, first.1, first.0, first.1);
        let (left, top, right, bottom) = pixels().fold(start, |(l, t, r, b), (x, y)| {
            (l.min(x), t.min(y), r.max(x), b.max(y))
        });
        let place = |k: usize, low: usize, high: usize| {
            low as f32 + (k as f32 + 0.5) * (high - low + 1) as f32 / n as f32
        };
        let grid = (0..n * n).map(|k| (place(k % n, left, right), place(k / n, top, bottom)));
        let inside: Vec<_> = grid
            .filter(|&(x, y)| self.set[y as usize * w + x as usize])
            .collect();
        if !inside.is_empty() {
            return Ok(inside);
        }
        let (mut count, mut sum_x, mut sum_y) = (0.0_f64, 0.0, 0.0);
        for (x, y) in pixels() {
            count += 1.0;
            sum_x += x as f64;
            sum_y += y as f64;
        }
        let distance =
            |(x, y): (usize, usize)| (x as f64 - sum_x / count).hypot(y as f64 - sum_y / count);
        let nearest = pixels()
            .min_by(|a, b| distance(*a).total_cmp(&distance(*b)))
            .unwrap_or(first);
        Ok(vec![(nearest.0 as f32 + 0.5, nearest.1 as f32 + 0.5)])
    }
}

fn not_a_mask(error: &track_video::Error) -> String {
    use track_video::Error as Video;
    match error {
        Video::NotFound { .. } => "no such mask; check the path".to_owned(),
        Video::Unreadable { source, .. } => {
            format!("the mask cannot be read ({})", os_reason(source))
        }
        _ => "expected one still picture as a mask, such as a PNG, and found something else"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disc(width: u32, height: u32, cx: i64, cy: i64, r: i64) -> Mask {
        let set = (0..i64::from(height))
            .flat_map(|y| {
                (0..i64::from(width)).map(move |x| (x - cx).pow(2) + (y - cy).pow(2) <= r * r)
            })
            .collect();
        Mask::new(width, height, set).unwrap()
    }

    #[test]
    fn the_grid_is_laid_over_the_masks_own_box() {
        let mask = disc(100, 80, 50, 40, 10);
        let points = mask.points(3, 100, 80).unwrap();
        assert!(points.contains(&(50.5, 40.5)));
        assert_eq!(points.len(), 9);
    }

    #[test]
    fn a_mask_that_the_grid_misses_gives_the_pixel_nearest_its_centroid() {
        // Two pixels in opposite corners: the one cell's centre lies in neither.
        let mut set = vec![false; 25];
        set[0] = true;
        set[24] = true;
        let mask = Mask::new(5, 5, set).unwrap();
        assert_eq!(mask.points(1, 5, 5).unwrap(), [(0.5, 0.5)]);
    }

    #[test]
    fn both_sizes_are_named_when_they_differ_and_black_is_refused() {
        let error = disc(10, 8, 5, 4, 2).points(3, 100, 80).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the mask is 10×8, but the picture is 100×80; give a mask of the picture's size"
        );
        let black = Mask::new(4, 4, vec![false; 16]).unwrap();
        assert!(
            black
                .points(3, 4, 4)
                .unwrap_err()
                .to_string()
                .contains("black")
        );
        assert!(Mask::new(4, 4, vec![true; 15]).is_err());
        assert!(Mask::new(0, 4, vec![]).is_err());
    }

    proptest! {
        #[test]
        fn points_lie_on_set_pixels(
            w in 1u32..30, h in 1u32..30, n in 1usize..8,
            bits in prop::collection::vec(prop::bool::weighted(0.1), 900),
        ) {
            let set: Vec<bool> = bits[..(w * h) as usize].to_vec();
            let any = set.iter().any(|s| *s);
            let result = Mask::new(w, h, set.clone()).unwrap().points(n, w, h);
            prop_assert_eq!(result.is_ok(), any);
            for (x, y) in result.unwrap_or_default() {
                prop_assert!(set[y as usize * w as usize + x as usize]);
            }
        }
    }
}
