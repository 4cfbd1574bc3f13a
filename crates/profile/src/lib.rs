//! Layer scopes: what each part of a model costs, recorded where the work is done.
//!
//! A [`Profiler`] is handed down a forward pass. Every layer opens a [`Scope`] under its name and says
//! how many floating-point operations and bytes it is about to spend; the scope's end is the layer's
//! end. A profiler that is off costs one branch a layer.
//!
//! ```
//! use track_profile::{Cost, Profiler};
//! let profiler = Profiler::on();
//! {
//!     let _layer = profiler.layer("encoder.stem", Cost { flops: 2_000_000, bytes: 4_096 });
//! }
//! let report = profiler.report();
//! assert_eq!(report.layers[0].name, "encoder.stem");
//! assert_eq!(report.layers[0].calls, 1);
//! ```
//!
//! Times here come from the host's clock, which is right for a CPU, where a layer returns when it is
//! done. A device that runs behind the host needs its own events.

mod report;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use report::{Layer, Report};

/// What a layer spends, by the arithmetic of its definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes that must at least be read and written: operands once, results once.
    pub bytes: u64,
}

/// Records layers, or does nothing. Clones share one record.
#[derive(Debug, Clone, Default)]
pub struct Profiler(Option<Arc<Mutex<Vec<Entry>>>>);

/// One finished layer, in the order in which layers ended.
#[derive(Debug, Clone)]
struct Entry {
    name: &'static str,
    time: Duration,
    cost: Cost,
}

impl Profiler {
    /// A profiler that records.
    pub fn on() -> Self {
        Self(Some(Arc::default()))
    }

    /// A profiler that does nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether layers are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Opens a layer's scope, which ends when the returned value is dropped.
    #[must_use = "the layer ends when its scope is dropped"]
    pub fn layer(&self, name: &'static str, cost: Cost) -> Scope {
        Scope {
            open: self.0.as_ref().map(|record| Open {
                record: Arc::clone(record),
                name,
                cost,
                start: Instant::now(),
            }),
        }
    }

    /// Everything recorded so far, one row per layer name in the order of first use.
    pub fn report(&self) -> Report {
        let entries = self.0.as_ref().map_or_else(Vec::new, |record| {
            record
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        });
        Report::from_calls(entries.iter().map(|e| (e.name, e.time, e.cost)))
    }
}

/// A layer in progress.
#[derive(Debug)]
pub struct Scope {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    record: Arc<Mutex<Vec<Entry>>>,
    name: &'static str,
    cost: Cost,
    start: Instant,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let entry = Entry {
                name: open.name,
                time: open.start.elapsed(),
                cost: open.cost,
            };
            tracing::trace!(layer = entry.name, ms = entry.time.as_secs_f64() * 1e3);
            open.record
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_off_profiler_records_nothing() {
        let profiler = Profiler::off();
        drop(profiler.layer("a", Cost::default()));
        assert!(profiler.report().layers.is_empty());
        assert!(!profiler.is_on());
    }

    #[test]
    fn clones_share_one_record_and_calls_add_up() {
        let profiler = Profiler::on();
        let cost = Cost {
            flops: 10,
            bytes: 4,
        };
        drop(profiler.layer("a", cost));
        drop(profiler.clone().layer("b", cost));
        drop(profiler.layer("a", cost));
        let report = profiler.report();
        let names: Vec<_> = report
            .layers
            .iter()
            .map(|l| (l.name.as_str(), l.calls, l.flops))
            .collect();
        assert_eq!(names, [("a", 2, 20), ("b", 1, 10)]);
        assert!(report.total_ms >= report.layers[0].total_ms);
    }
}
