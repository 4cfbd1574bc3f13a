//! The one place that says what a precision means.

use std::fmt;
use std::str::FromStr;

use candle_core::DType;

use crate::Device;

/// The arithmetic of a model.
///
/// Weights, encoder activations, correlation operands and transformer activations are kept in it, and
/// products accumulate in f32. Positions, occlusion logits, softmax, the statistics of normalisations
/// and the soft arg-max stay in f32 whatever the precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Precision {
    /// IEEE single precision, never through reduced-precision products.
    #[default]
    F32,
    /// Single precision storage, products with a 10-bit mantissa (NVIDIA, from sm_80).
    Tf32,
    /// IEEE half precision.
    F16,
    /// Half the width of f32 with its exponent (NVIDIA, from sm_80).
    Bf16,
}

/// A precision that a device cannot compute in, or a name that is no precision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrecisionError {
    /// The device cannot do it.
    #[error("{precision} is not available on {device}; it can compute in {available}")]
    Unavailable {
        /// What was asked for.
        precision: Precision,
        /// The device's name.
        device: String,
        /// What it can do, as a list for people.
        available: String,
    },
    /// The word names no precision.
    #[error("'{0}' is no precision; use f32, tf32, f16 or bf16")]
    Unknown(String),
}

impl Precision {
    /// All precisions, the most exact first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16];

    /// The name on the command line and in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The type in which weights and activations are stored.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }

    /// Refuses what `device` cannot do.
    ///
    /// # Errors
    /// A precision that the device does not have; the message names those that it has.
    pub fn check(self, device: &Device) -> Result<(), PrecisionError> {
        let available = device.precisions();
        if available.contains(&self) {
            return Ok(());
        }
        let names: Vec<_> = available.iter().map(|p| p.name()).collect();
        Err(PrecisionError::Unavailable {
            precision: self,
            device: device.to_string(),
            available: names.join(", "),
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|p| p.name() == s)
            .ok_or_else(|| PrecisionError::Unknown(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for p in Precision::ALL {
            assert_eq!(p.name().parse::<Precision>().unwrap(), p);
        }
        let error = "fp16".parse::<Precision>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "'fp16' is no precision; use f32, tf32, f16 or bf16"
        );
    }

    #[test]
    fn a_cpu_computes_in_f32_only() {
        assert!(Precision::F32.check(&Device::Cpu).is_ok());
        let error = Precision::Bf16.check(&Device::Cpu).unwrap_err();
        assert_eq!(
            error.to_string(),
            "bf16 is not available on the CPU; it can compute in f32"
        );
    }
}
