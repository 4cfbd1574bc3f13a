//! What each part of a model costs: recorded where the work is done, compared with what a device can do.
//!
//! A [`Profiler`] is handed down a forward pass. Every layer opens a [`Scope`] under its name and says what it
//! is about to spend ([`Cost`]); the scope's end is the layer's end. A profiler that is off costs one branch a
//! layer.
//!
//! ```
//! use track_profile::{Cost, Profiler};
//! let profiler = Profiler::on();
//! {
//!     let _layer = profiler.layer("encoder.stem", Cost::product(1_000, 64, 147));
//! }
//! let report = profiler.report();
//! assert_eq!(report.layers[0].name, "encoder.stem");
//! assert_eq!(report.layers[0].calls, 1);
//! ```
//!
//! A scope's times come from the host's clock, which is right for a CPU, where a layer returns when it is done.
//! A device that runs behind the host measures with its own events and hands them over with
//! [`Profiler::record`].
//!
//! Every scope is also a `tracing` span of the layer's name (level TRACE, target `track::layer`), whether or not
//! the profiler is on, and with the feature `nvtx` a range in Nsight Systems (domain `track`).
//!
//! [`record::BenchReport`] is what a benchmark keeps of it, [`roofline`] says what a layer must take at least,
//! and [`explain`] what it would cost on other [`devices`].

pub mod against;
mod cost;
pub mod devices;
pub mod explain;
pub mod html;
pub mod record;
mod report;
pub mod roofline;
mod span;
pub mod table;
pub mod trace;
pub mod view;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use cost::Cost;
pub use report::{Layer, Report};
pub use span::{Span, span};

/// Records layers, or does nothing. Clones share one record.
#[derive(Debug, Clone, Default)]
pub struct Profiler(Option<Arc<Record>>);

#[derive(Debug)]
struct Record {
    /// Starts are counted from here.
    origin: Instant,
    calls: Mutex<Vec<Call>>,
}

/// One finished call of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The layer's name, dotted from the outside in.
    pub name: &'static str,
    /// When it began, counted from the profiler's making or from the beginning of a device's pass.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// What it spends.
    pub cost: Cost,
}

impl Profiler {
    /// A profiler that records.
    pub fn on() -> Self {
        Self(Some(Arc::new(Record {
            origin: Instant::now(),
            calls: Mutex::default(),
        })))
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
            span: span(name),
            open: self.0.as_ref().map(|record| Open {
                record: Arc::clone(record),
                name,
                cost,
                start: Instant::now(),
            }),
        }
    }

    /// Adds a layer that a device measured by its own events: its start since the pass began, and its duration.
    pub fn record(&self, name: &'static str, start: Duration, time: Duration, cost: Cost) {
        if let Some(record) = &self.0 {
            record.push(Call {
                name,
                start,
                time,
                cost,
            });
        }
    }

    /// Every call so far, in the order in which layers ended.
    pub fn calls(&self) -> Vec<Call> {
        self.0.as_ref().map_or_else(Vec::new, |record| {
            record
                .calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    /// Everything recorded so far, one row per layer name in the order of first use.
    pub fn report(&self) -> Report {
        Report::new(&self.calls())
    }
}

impl Record {
    fn push(&self, call: Call) {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(call);
    }
}

/// A layer in progress, which other tools see as a [`Span`].
#[derive(Debug)]
pub struct Scope {
    open: Option<Open>,
    /// Outside the time that is taken.
    #[allow(dead_code, reason = "it ends with the scope")]
    span: Span,
}

#[derive(Debug)]
struct Open {
    record: Arc<Record>,
    name: &'static str,
    cost: Cost,
    start: Instant,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.record.push(Call {
                name: open.name,
                start: open.start.duration_since(open.record.origin),
                time: open.start.elapsed(),
                cost: open.cost,
            });
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
        profiler.record("b", Duration::ZERO, Duration::ZERO, Cost::default());
        assert!(profiler.report().layers.is_empty());
        assert!(!profiler.is_on());
    }

    #[test]
    fn clones_share_one_record_and_calls_add_up() {
        let profiler = Profiler::on();
        let cost = Cost::product(1, 5, 1);
        drop(profiler.layer("a", cost));
        drop(profiler.clone().layer("b", cost));
        drop(profiler.layer("a", cost));
        let report = profiler.report();
        let names: Vec<_> = report
            .layers
            .iter()
            .map(|l| (l.name.as_str(), l.calls, l.cost.flops()))
            .collect();
        assert_eq!(names, [("a", 2, 20), ("b", 1, 10)]);
        assert!(report.total_ms >= report.layers[0].total_ms);
    }

    #[test]
    fn scopes_start_in_order_and_devices_say_when() {
        let profiler = Profiler::on();
        drop(profiler.layer("a", Cost::default()));
        drop(profiler.layer("b", Cost::default()));
        let calls = profiler.calls();
        assert!(calls[0].start + calls[0].time <= calls[1].start);
        let (start, time) = (Duration::from_millis(3), Duration::from_micros(7));
        profiler.record("c", start, time, Cost::default());
        assert_eq!(profiler.calls()[2].start, start);
        assert_eq!(profiler.report().layers[2].total_ms, 0.007);
    }
}
