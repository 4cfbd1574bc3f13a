//! Runs the layers of a forward pass under their names.

use std::fmt;

use candle_core::{DType, Tensor};
use track_profile::{Cost, Profiler};

use super::refine::State;
use crate::{Error, Precision, Result};

/// What a part of a forward pass works on, for people: counted from 0, the end not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Frames being encoded.
    Frames {
        /// The first.
        first: usize,
        /// The first behind them.
        end: usize,
    },
    /// Points being followed.
    Points {
        /// The first.
        first: usize,
        /// The first behind them.
        end: usize,
        /// 0 is the first estimate, K the K-th refinement.
        iteration: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Frames { first, end } => write!(f, "frames {first} to {}", end.saturating_sub(1)),
            Self::Points {
                first,
                end,
                iteration,
            } => {
                write!(f, "points {first} to {} in ", end.saturating_sub(1))?;
                match iteration {
                    0 => f.write_str("the first estimate"),
                    k => write!(f, "refinement {k}"),
                }
            }
        }
    }
}

/// Records what layers cost and, where that is wanted, looks at what they give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layers<'a> {
    pub(crate) profiler: &'a Profiler,
    /// Look at every result, and say where it belongs when it is not finite.
    pub(crate) check_finite: bool,
    /// What is worked on.
    pub(crate) place: Place,
}

impl Layers<'_> {
    /// One layer. Looking at its result is not part of its time.
    ///
    /// # Errors
    /// What `work` fails with, or [`Error::NotFinite`].
    pub(crate) fn run<R: Values>(
        &self,
        name: &'static str,
        cost: Cost,
        work: impl FnOnce() -> candle_core::Result<R>,
    ) -> Result<R> {
        let result = {
            let _layer = self.profiler.layer(name, cost);
            work()?
        };
        if self.check_finite {
            for values in result.values() {
                if !is_finite(values)? {
                    return Err(Error::NotFinite {
                        layer: name.to_owned(),
                        // The layers that run here are those of the CPU.
                        precision: Precision::F32,
                        place: self.place.to_string(),
                    });
                }
            }
        }
        Ok(result)
    }
}

/// What a layer gives.
pub(crate) trait Values {
    /// All its tensors.
    fn values(&self) -> Vec<&Tensor>;
}

impl Values for Tensor {
    fn values(&self) -> Vec<&Tensor> {
        vec![self]
    }
}

impl Values for track_kernels::InitialTracks {
    fn values(&self) -> Vec<&Tensor> {
        vec![&self.positions, &self.occlusion, &self.expected_dist]
    }
}

impl Values for State {
    fn values(&self) -> Vec<&Tensor> {
        vec![&self.positions, &self.occlusion, &self.expected_dist]
    }
}

/// Zero times a number is zero, and NaN for what is none.
fn is_finite(tensor: &Tensor) -> candle_core::Result<bool> {
    if !tensor.dtype().is_float() {
        return Ok(true);
    }
    let sum = tensor.affine(0.0, 0.0)?.sum_all()?;
    let sum = sum.to_dtype(DType::F32)?.to_scalar::<f32>()?;
    Ok(sum.is_finite())
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn layers(profiler: &Profiler, check_finite: bool) -> Layers<'_> {
        Layers {
            profiler,
            check_finite,
            place: Place::Frames { first: 4, end: 8 },
        }
    }

    #[test]
    fn one_bad_value_is_found_wherever_it_is() {
        let profiler = Profiler::off();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 500, 999] {
                let mut values = vec![f32::MAX; 1000];
                let run = |values: &[f32], check: bool| {
                    layers(&profiler, check).run("encoder.stem", Cost::default(), || {
                        Tensor::from_slice(values, (10, 100), &Device::Cpu)
                    })
                };
                assert!(run(&values, true).is_ok());
                values[at] = bad;
                assert!(run(&values, false).is_ok());
                let error = run(&values, true).unwrap_err().to_string();
                assert!(error.starts_with("the layer encoder.stem gave values that are not finite in f32 on frames 4 to 7"), "{error}");
            }
        }
    }

    #[test]
    fn looking_is_not_recorded_as_a_layer() {
        let profiler = Profiler::on();
        let zeros = || Tensor::zeros((2, 2), DType::F32, &Device::Cpu);
        layers(&profiler, true)
            .run("a", Cost::default(), zeros)
            .unwrap();
        assert_eq!(profiler.calls().len(), 1);
    }

    #[test]
    fn places_are_said_for_people() {
        let points = |iteration| Place::Points {
            first: 0,
            end: 87,
            iteration,
        };
        assert_eq!(
            points(0).to_string(),
            "points 0 to 86 in the first estimate"
        );
        assert_eq!(points(3).to_string(), "points 0 to 86 in refinement 3");
    }
}
