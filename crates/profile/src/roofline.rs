//! What a layer must take at least on a device, and what keeps it from taking less.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Cost;
use crate::record::{Ceilings, value_size};

/// What a device can reach in one precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Matrix products, operations a second.
    pub products: f64,
    /// Other arithmetic, operations a second.
    pub vector: f64,
    /// Memory traffic, bytes a second.
    pub bandwidth: f64,
    /// Seconds that every call takes beside its work.
    pub launch: f64,
    /// Bytes of a value in the model's precision.
    pub value_size: u64,
}

/// What keeps a layer from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic, most of it in matrix products.
    Products,
    /// Arithmetic, most of it outside matrix products.
    Arithmetic,
    /// Memory traffic.
    Bandwidth,
    /// Its calls, which take longer than the work.
    Launch,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Products => "products",
            Self::Arithmetic => "arithmetic",
            Self::Bandwidth => "bandwidth",
            Self::Launch => "launch",
        })
    }
}

/// The least time for some work, and its parts, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// `max(products + arithmetic, traffic) + launch`.
    pub seconds: f64,
    /// Matrix products at their rate.
    pub products: f64,
    /// Other arithmetic at its rate.
    pub arithmetic: f64,
    /// Traffic at the bandwidth.
    pub traffic: f64,
    /// All calls.
    pub launch: f64,
    /// The largest part.
    pub bound: Bound,
}

impl Floor {
    /// In milliseconds.
    pub fn ms(&self) -> f64 {
        self.seconds * 1e3
    }
}

impl Rates {
    /// What `ceilings` say of a precision; `None` where they do not have it.
    pub fn new(ceilings: &Ceilings, dtype: &str) -> Option<Self> {
        Some(Self {
            products: ceilings.tflops.get(dtype)? * 1e12,
            vector: ceilings.vector_tflops * 1e12,
            bandwidth: ceilings.bandwidth_gbs * 1e9,
            launch: ceilings.launch_us.unwrap_or(0.0) * 1e-6,
            value_size: value_size(dtype)?,
        })
    }

    /// The least time for `calls` calls that together spend `cost`.
    ///
    /// Arithmetic and traffic overlap, so the longer of them counts; products and other arithmetic are counted
    /// one after the other, and calls after all.
    pub fn floor(&self, cost: &Cost, calls: u64) -> Floor {
        let products = cost.products as f64 / self.products;
        let arithmetic = cost.other as f64 / self.vector;
        let traffic = cost.bytes_at(self.value_size) as f64 / self.bandwidth;
        let launch = calls as f64 * self.launch;
        let work = (products + arithmetic).max(traffic);
        let bound = if launch > work {
            Bound::Launch
        } else if traffic >= products + arithmetic {
            Bound::Bandwidth
        } else if products >= arithmetic {
            Bound::Products
        } else {
            Bound::Arithmetic
        };
        Floor {
            seconds: work + launch,
            products,
            arithmetic,
            traffic,
            launch,
            bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Tflop/s of products, 1 of other arithmetic, 100 GB/s, 5 µs a call.
    fn rates(value_size: u64) -> Rates {
        Rates {
            products: 10e12,
            vector: 1e12,
            bandwidth: 100e9,
            launch: 5e-6,
            value_size,
        }
    }

    #[test]
    fn floors_by_hand() {
        let cost = Cost {
            products: 20_000_000_000,
            narrow: 0,
            other: 1_000_000_000,
            values: 50_000_000,
            bytes: 100_000_000,
        };
        // 2 ms of products, 1 ms of arithmetic, 3 ms of traffic (300 MB), 10 µs of launches.
        let floor = rates(4).floor(&cost, 2);
        assert!((floor.ms() - 3.01).abs() < 1e-9, "{floor:?}");
        assert_eq!(floor.bound, Bound::Bandwidth);
        // In half the bytes the traffic takes 2 ms and arithmetic, 3 ms, binds.
        let floor = rates(2).floor(&cost, 2);
        assert!((floor.ms() - 3.01).abs() < 1e-9);
        assert_eq!(floor.bound, Bound::Products);
        let small = Cost::elementwise(1000, 1);
        assert_eq!(rates(4).floor(&small, 1).bound, Bound::Launch);
        let sums = Cost {
            other: 1_000_000_000,
            ..Cost::default()
        };
        assert_eq!(rates(4).floor(&sums, 1).bound, Bound::Arithmetic);
    }

    #[test]
    fn rates_come_from_ceilings_in_their_units() {
        let ceilings = Ceilings {
            bandwidth_gbs: 100.0,
            launch_us: Some(5.0),
            tflops: [("f32".to_owned(), 10.0)].into(),
            vector_tflops: 1.0,
            source: "measured".to_owned(),
        };
        let found = Rates::new(&ceilings, "f32").unwrap();
        assert_eq!(found.value_size, 4);
        for (a, b) in [
            (found.products, 10e12),
            (found.vector, 1e12),
            (found.bandwidth, 100e9),
            (found.launch, 5e-6),
        ] {
            assert!((a / b - 1.0).abs() < 1e-12);
        }
        assert!(Rates::new(&ceilings, "f16").is_none());
    }
}
