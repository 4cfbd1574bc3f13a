//! What a layer spends by the arithmetic of its definition, whatever a device makes of it.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

use serde::{Deserialize, Serialize};

/// What one call of a layer spends, by the arithmetic of its definition.
///
/// A multiply-add is two operations; a root, a division, a sine or an exponential is one. Operands count once
/// and results once, however often a kernel reads them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Operations inside matrix products (convolutions, linear layers, correlations), which may go to Tensor Cores.
    pub products: u64,
    /// The part of `products` whose inner size or number of outputs is no multiple of 8, so that f16 Tensor
    /// Cores need padding.
    pub narrow: u64,
    /// All other operations: norms, softmax, interpolation.
    pub other: u64,
    /// Activations and weights in the model's precision: bytes are values × 4 (f32, tf32) or 2 (f16, bf16).
    pub values: u64,
    /// Bytes that are the same in every precision: u8 frames, f32 positions and logits, f32 tiles of costs.
    pub bytes: u64,
}

impl Cost {
    /// A product `[m, k] · [k, n]`, its operands read once and its result written once.
    pub const fn product(m: u64, n: u64, k: u64) -> Self {
        let products = 2 * m * n * k;
        Self {
            products,
            narrow: if n.is_multiple_of(8) && k.is_multiple_of(8) {
                0
            } else {
                products
            },
            other: 0,
            values: m * k + k * n + m * n,
            bytes: 0,
        }
    }

    /// An operation on `values` numbers in the model's precision, read and written once, `each` operations a number.
    pub const fn elementwise(values: u64, each: u64) -> Self {
        Self {
            products: 0,
            narrow: 0,
            other: values * each,
            values: 2 * values,
            bytes: 0,
        }
    }

    /// All floating-point operations.
    pub const fn flops(&self) -> u64 {
        self.products + self.other
    }

    /// All bytes where a value takes `value_size` of them.
    pub const fn bytes_at(&self, value_size: u64) -> u64 {
        self.values * value_size + self.bytes
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(mut self, more: Self) -> Self {
        self += more;
        self
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.products += more.products;
        self.narrow += more.narrow;
        self.other += more.other;
        self.values += more.values;
        self.bytes += more.bytes;
    }
}

impl Mul<u64> for Cost {
    type Output = Self;

    /// The same `times` over.
    fn mul(self, times: u64) -> Self {
        Self {
            products: self.products * times,
            narrow: self.narrow * times,
            other: self.other * times,
            values: self.values * times,
            bytes: self.bytes * times,
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_counted_by_hand() {
        let cost = Cost::product(3, 16, 24);
        assert_eq!(cost.products, 2 * 3 * 16 * 24);
        assert_eq!(cost.narrow, 0);
        assert_eq!(cost.values, 3 * 24 + 24 * 16 + 3 * 16);
        // 49 outputs are no multiple of 8, nor are 147 inputs.
        let narrow = Cost::product(64, 49, 128);
        assert_eq!(narrow.narrow, narrow.products);
        let narrow = Cost::product(64, 64, 147);
        assert_eq!(narrow.narrow, narrow.products);
    }

    #[test]
    fn values_weigh_what_the_precision_says_and_bytes_do_not() {
        let cost = Cost::elementwise(10, 3)
            + Cost {
                bytes: 7,
                ..Cost::default()
            };
        assert_eq!(cost.flops(), 30);
        assert_eq!((cost.bytes_at(4), cost.bytes_at(2)), (87, 47));
        assert_eq!((cost * 2).bytes_at(2), 94);
        assert_eq!([cost, cost].into_iter().sum::<Cost>(), cost * 2);
    }
}
