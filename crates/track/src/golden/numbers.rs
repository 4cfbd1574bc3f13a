//! The numbers of one clip: exact, as tensors in a safetensors file.

use std::collections::HashMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::Tracks;

/// The one key of the file's metadata; its value is a JSON object that says where the numbers come from.
const METADATA: &str = "track-golden";

/// What is compared, frames first: `T` frames, `N` points.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) frames: usize,
    pub(crate) points: usize,
    /// `[T, N, 2]`: x, y in pixels of the clip.
    pub(crate) positions: Vec<f32>,
    /// `[T, N]`: logits.
    pub(crate) occlusion: Vec<f32>,
    /// `[T, N]`: logits.
    pub(crate) expected_dist: Vec<f32>,
    /// `[T, N]`.
    pub(crate) visible: Vec<bool>,
    /// `[N, 3]`: t, x, y as asked for.
    pub(crate) queries: Vec<f32>,
}

impl Numbers {
    pub(crate) fn of(tracks: &Tracks) -> Self {
        Self {
            frames: tracks.frames(),
            points: tracks.points(),
            positions: tracks.positions.iter().copied().collect(),
            occlusion: tracks.occlusion.iter().copied().collect(),
            expected_dist: tracks.expected_dist.iter().copied().collect(),
            visible: tracks.visible.iter().copied().collect(),
            queries: tracks
                .queries
                .iter()
                .flat_map(|q| [q.t, q.x, q.y])
                .collect(),
        }
    }

    /// Whether every number is one.
    pub(crate) fn finite(&self) -> bool {
        [&self.positions, &self.occlusion, &self.expected_dist]
            .into_iter()
            .flatten()
            .all(|v| v.is_finite())
    }

    /// Position of point `n` on frame `t`.
    pub(crate) fn position(&self, t: usize, n: usize) -> [f32; 2] {
        let at = 2 * (t * self.points + n);
        [self.positions[at], self.positions[at + 1]]
    }

    /// The file's bytes: `positions` f32 `[T, N, 2]`, `occlusion` and `expected_dist` f32 `[T, N]`, `visible` u8
    /// `[T, N]`, `queries` f32 `[N, 3]`. The same numbers give the same bytes.
    pub(crate) fn to_bytes(&self, origin: String) -> Result<Vec<u8>, String> {
        let (t, n) = (self.frames, self.points);
        let bytes =
            |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let visible: Vec<u8> = self.visible.iter().map(|&v| u8::from(v)).collect();
        let tensors = [
            (
                "positions",
                Dtype::F32,
                vec![t, n, 2],
                bytes(&self.positions),
            ),
            ("occlusion", Dtype::F32, vec![t, n], bytes(&self.occlusion)),
            (
                "expected_dist",
                Dtype::F32,
                vec![t, n],
                bytes(&self.expected_dist),
            ),
            ("visible", Dtype::U8, vec![t, n], visible),
            ("queries", Dtype::F32, vec![n, 3], bytes(&self.queries)),
        ];
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| {
                TensorView::new(*dtype, shape.clone(), data).map(|view| (*name, view))
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| e.to_string())?;
        // One key: several would come in another order each time.
        let metadata = HashMap::from([(METADATA.to_owned(), origin)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| e.to_string())
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
        let tensor = |name: &str, dtype: Dtype| {
            let tensor = file.tensor(name).map_err(|e| e.to_string())?;
            if tensor.dtype() != dtype {
                return Err(format!("{name} is {:?}, not {dtype:?}", tensor.dtype()));
            }
            Ok((tensor.shape().to_vec(), tensor.data().to_vec()))
        };
        let floats = |name: &str| {
            let (shape, data) = tensor(name, Dtype::F32)?;
            let values: Vec<f32> = data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            if values.iter().all(|v| v.is_finite()) {
                Ok((shape, values))
            } else {
                Err(format!("{name} holds values that are not finite"))
            }
        };
        let (shape, positions) = floats("positions")?;
        let &[frames, points, 2] = shape.as_slice() else {
            return Err(format!("positions are {shape:?}, not [frames, points, 2]"));
        };
        let fits = |name: &str, found: &[usize], expected: &[usize]| {
            if found == expected {
                Ok(())
            } else {
                Err(format!("{name} is {found:?}, not {expected:?}"))
            }
        };
        let plane = [frames, points];
        let (shape, occlusion) = floats("occlusion")?;
        fits("occlusion", &shape, &plane)?;
        let (shape, expected_dist) = floats("expected_dist")?;
        fits("expected_dist", &shape, &plane)?;
        let (shape, queries) = floats("queries")?;
        fits("queries", &shape, &[points, 3])?;
        let (shape, visible) = tensor("visible", Dtype::U8)?;
        fits("visible", &shape, &plane)?;
        if frames == 0 || points == 0 {
            return Err("there is no frame or no point in it".to_owned());
        }
        Ok(Self {
            frames,
            points,
            positions,
            occlusion,
            expected_dist,
            visible: visible.into_iter().map(|v| v != 0).collect(),
            queries,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Three frames, two points, all of it visible.
    pub(crate) fn numbers() -> Numbers {
        Numbers {
            frames: 3,
            points: 2,
            positions: (0..12).map(|v| v as f32 + 0.25).collect(),
            occlusion: vec![-5.0; 6],
            expected_dist: vec![-6.0; 6],
            visible: vec![true; 6],
            queries: vec![0.0, 0.25, 1.25, 2.0, 10.25, 11.25],
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_always_the_same() {
        let numbers = numbers();
        let bytes = numbers.to_bytes("{}".to_owned()).unwrap();
        assert_eq!(Numbers::from_bytes(&bytes).unwrap(), numbers);
        for _ in 0..5 {
            assert_eq!(numbers.to_bytes("{}".to_owned()).unwrap(), bytes);
        }
        assert_eq!(numbers.position(1, 1), [6.25, 7.25]);
    }

    #[test]
    fn other_files_are_refused() {
        let read = |numbers: &Numbers| Numbers::from_bytes(&numbers.to_bytes(String::new())?);
        let mut bad = numbers();
        bad.positions[3] = f32::NAN;
        assert!(!bad.finite());
        assert!(read(&bad).unwrap_err().contains("positions"));
        let mut bad = numbers();
        bad.queries.truncate(3);
        assert!(read(&bad).is_err());
        let bytes = numbers().to_bytes(String::new()).unwrap();
        for cut in [0, 7, 40, bytes.len() - 1] {
            assert!(Numbers::from_bytes(&bytes[..cut]).is_err(), "{cut} bytes");
        }
    }
}
