//! Recorded layers added up, and the table that people read.

use std::fmt;

use serde::Serialize;

use crate::{Call, Cost};

/// Layers by name, in the order of first use.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// One row per layer name.
    pub layers: Vec<Layer>,
    /// Sum over the layers, in milliseconds.
    pub total_ms: f64,
}

/// What one layer cost over all its calls.
#[derive(Debug, Clone, Serialize)]
pub struct Layer {
    /// The layer's name, dotted from the outside in.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Time over all calls, in milliseconds.
    pub total_ms: f64,
    /// What all calls spend, by definition of the layer.
    pub cost: Cost,
}

impl Layer {
    /// Operations per second that the layer reached, in GFLOP/s, counted by its definition.
    pub fn gflops(&self) -> f64 {
        self.cost.flops() as f64 / (self.total_ms * 1e6)
    }
}

impl Report {
    pub(crate) fn new(calls: &[Call]) -> Self {
        let mut report = Self::default();
        for call in calls {
            let ms = call.time.as_secs_f64() * 1e3;
            report.total_ms += ms;
            match report.layers.iter_mut().find(|l| l.name == call.name) {
                Some(layer) => {
                    layer.calls += 1;
                    layer.total_ms += ms;
                    layer.cost += call.cost;
                }
                None => report.layers.push(Layer {
                    name: call.name.to_owned(),
                    calls: 1,
                    total_ms: ms,
                    cost: call.cost,
                }),
            }
        }
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .layers
            .iter()
            .map(|l| l.name.len())
            .max()
            .unwrap_or(0)
            .max("layer".len());
        writeln!(
            f,
            "{:width$}  {:>6}  {:>9}  {:>6}  {:>9}",
            "layer", "calls", "ms", "share", "GFLOP/s"
        )?;
        for layer in &self.layers {
            writeln!(
                f,
                "{:width$}  {:>6}  {:>9.2}  {:>5.1}%  {:>9.1}",
                layer.name,
                layer.calls,
                layer.total_ms,
                100.0 * layer.total_ms / self.total_ms.max(f64::MIN_POSITIVE),
                layer.gflops(),
            )?;
        }
        write!(f, "{:width$}  {:>6}  {:>9.2}", "sum", "", self.total_ms)
    }
}
