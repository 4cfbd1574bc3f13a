//! One precision measured: runs that count for nothing, timed runs, profiled runs.

use std::time::{Duration, Instant};

use track_model::{Context, DeviceStats, Query};
use track_profile::record::{LayerRecord, PrecisionRecord, Settings, Timing, median};
use track_profile::{Call, Profiler, Report};

use super::frames::Source;
use super::{BenchStage, host};
use crate::watch::Relay;
use crate::{Error, Result, Tracker, Watch};

/// What is to be run.
pub(super) struct Plan<'a> {
    pub(super) tracker: &'a Tracker,
    pub(super) source: &'a Source,
    pub(super) queries: &'a [Query],
    pub(super) settings: &'a Settings,
    pub(super) watch: &'a Watch<'a>,
    /// Told what the next run is for, and how many of this precision are done.
    pub(super) progress: &'a dyn Fn(BenchStage, usize),
}

/// What one run took; all its clips together.
#[derive(Debug, Default, Clone, Copy)]
struct Run {
    decode: Duration,
    /// From the first frame pushed to the last track on the host, by the host's clock.
    session: Duration,
    device: Option<DeviceStats>,
}

impl Run {
    /// The forward pass: by the device's events, where it has any.
    fn model(&self) -> Duration {
        self.device.map_or(self.session, |device| device.model)
    }

    fn end_to_end(&self) -> Duration {
        self.decode + self.session
    }
}

/// The record, and the calls of the last profiled run.
pub(super) fn measure(plan: &Plan<'_>) -> Result<(PrecisionRecord, Vec<Call>)> {
    let Settings { runs, warmup, .. } = *plan.settings;
    let off = Profiler::off();
    for done in 0..warmup {
        (plan.progress)(BenchStage::Warmup, done);
        run(plan, &off)?;
    }
    host::reset_peak_memory();
    let mut timed = Vec::with_capacity(runs);
    for n in 0..runs {
        (plan.progress)(BenchStage::Timed, warmup + n);
        timed.push(run(plan, &off)?);
    }
    let peak_host_bytes = host::peak_memory();
    let (mut profiled, mut reports, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..runs {
        (plan.progress)(BenchStage::Profiled, warmup + runs + n);
        let profiler = Profiler::on();
        profiled.push(run(plan, &profiler)?);
        reports.push(profiler.report());
        calls = profiler.calls();
    }
    let record = record(plan, &timed, &profiled, &reports, peak_host_bytes);
    Ok((record, calls))
}

/// Decodes and tracks every clip of a run.
fn run(plan: &Plan<'_>, profiler: &Profiler) -> Result<Run> {
    let mut all = Run::default();
    for _ in 0..plan.settings.batch {
        let start = Instant::now();
        let frames = plan.source.decode(plan.watch)?;
        if !plan.source.is_synthetic() {
            all.decode += start.elapsed();
        }
        let relay = Relay {
            watch: plan.watch,
            frames: Some(plan.settings.frames),
        };
        let context = Context {
            profiler: profiler.clone(),
            observer: &relay,
        };
        let options = plan.tracker.session_options();
        let start = Instant::now();
        let device = {
            let size = plan.source.size();
            let mut session = plan.tracker.model.session(size, &options, context)?;
            let tracked = session
                .push(&frames)
                .and_then(|()| session.track(plan.queries));
            match tracked {
                Err(track_model::Error::Cancelled) => return Err(Error::Cancelled),
                other => drop(other?),
            }
            all.session += start.elapsed();
            session.device_stats()
        };
        if let Some(more) = device {
            let sum = all.device.get_or_insert_default();
            sum.upload += more.upload;
            sum.model += more.model;
            sum.download += more.download;
            sum.launches += more.launches;
            sum.memory_bytes = sum.memory_bytes.max(more.memory_bytes);
        }
    }
    Ok(all)
}

fn record(
    plan: &Plan<'_>,
    timed: &[Run],
    profiled: &[Run],
    reports: &[Report],
    peak_host_bytes: Option<u64>,
) -> PrecisionRecord {
    let settings = plan.settings;
    let model = timing(timed, Run::model);
    let part = |pick: fn(&DeviceStats) -> Duration| {
        let runs: Vec<_> = timed.iter().filter_map(|run| run.device).collect();
        (!runs.is_empty()).then(|| timing(&runs, pick))
    };
    let busy = |run: &Run| {
        let device = run.device?;
        let busy = device.upload + device.model + device.download;
        Some(busy.as_secs_f64() / run.end_to_end().as_secs_f64().max(f64::MIN_POSITIVE))
    };
    let busy: Vec<_> = timed.iter().filter_map(busy).collect();
    let tracked = settings.points * settings.frames * settings.batch;
    let device = timed.first().and_then(|run| run.device);
    PrecisionRecord {
        dtype: plan.tracker.precision.name().to_owned(),
        end_to_end: timing(timed, Run::end_to_end),
        decode: timing(timed, |run| run.decode),
        upload: part(|device| device.upload),
        points_frames_per_second: tracked as f64 * 1e3 / model.median_ms.max(f64::MIN_POSITIVE),
        model,
        download: part(|device| device.download),
        peak_device_bytes: device.map(|device| device.memory_bytes),
        peak_host_bytes,
        device_busy: (!busy.is_empty()).then(|| median(busy)),
        launches: device.map(|device| device.launches / settings.batch.max(1) as u64),
        profiled: timing(profiled, Run::model),
        layers: layers(reports),
    }
}

fn timing<T>(runs: &[T], pick: impl Fn(&T) -> Duration) -> Timing {
    Timing::new(
        runs.iter()
            .map(|run| pick(run).as_secs_f64() * 1e3)
            .collect(),
    )
}

/// Each layer's median over the runs; calls and costs are the same in all of them.
fn layers(reports: &[Report]) -> Vec<LayerRecord> {
    let Some(first) = reports.first() else {
        return Vec::new();
    };
    first
        .layers
        .iter()
        .map(|layer| {
            let times = reports.iter().filter_map(|report| {
                let same = report.layers.iter().find(|l| l.name == layer.name)?;
                Some(same.total_ms)
            });
            LayerRecord {
                name: layer.name.clone(),
                calls: layer.calls,
                median_ms: median(times.collect()),
                cost: layer.cost,
            }
        })
        .collect()
}
