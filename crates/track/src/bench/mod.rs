//! Benchmarks: how long a clip takes, where the time goes, and what the device could do.
//!
//! Each precision is measured by itself: runs that count for nothing, timed runs, then runs in which every layer
//! is timed. A run decodes the clip's frames into memory, then tracks the points, one after the other, so that the
//! two can be told apart; a tracker proper decodes beside the encoder and takes less than their sum.

mod ceilings;
mod frames;
pub(crate) mod host;
mod measure;
mod weights;

use std::path::PathBuf;

use tempfile::TempDir;
use track_model::{ModelKind, Precision, Query, Resolution, Size};
use track_profile::Call;
use track_profile::record::{BenchReport, Ceilings, SCHEMA, Settings};

use self::frames::Source;
use self::measure::{Plan, measure};
use crate::{DeviceChoice, Error, Result, Tracker, Watch, Weights, WeightsRecord};

/// Points that are followed when nothing is said.
pub const DEFAULT_POINTS: usize = 256;
/// What reports call weights that are made by a formula.
pub const MADE_UP: &str = "made up";

/// Where a benchmark's frames come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BenchVideo {
    /// The clip that is part of the library: 47 frames of 256×256. A build without FFmpeg cannot decode it and
    /// takes made-up frames of the same size instead.
    #[default]
    Shipped,
    /// A file, as for [`crate::Clip::open`].
    File(PathBuf),
    /// Made-up frames, which nothing decodes.
    Synthetic,
}

/// What to measure. Everything has a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bench {
    /// Where frames come from.
    pub video: BenchVideo,
    /// Frames from the beginning; all of them if not given (47 made-up ones).
    pub frames: Option<usize>,
    /// The picture that is fed into the model (and the size of made-up frames); the model's own if not given.
    pub size: Option<Size>,
    /// Points to follow, spread over the first frame.
    pub points: usize,
    /// Precisions, one after the other; all that the device has if empty.
    pub precisions: Vec<Precision>,
    /// Timed runs of each kind; 20 on a device of its own and 3 on a CPU if not given.
    pub runs: Option<usize>,
    /// Runs before them that count for nothing; 3 on a device of its own and 1 on a CPU if not given.
    pub warmup: Option<usize>,
    /// Clips that one run tracks, one after the other: a device that idles between the parts of one clip has the
    /// next one's at hand.
    pub batch: usize,
    /// The model; that of the weights if not given.
    pub model: Option<ModelKind>,
    /// A file of weights; the built-in ones if not given. For a model without built-in weights, values by a
    /// formula stand in: what a pass costs does not depend on them.
    pub weights: Option<PathBuf>,
    /// Where to compute.
    pub device: DeviceChoice,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            video: BenchVideo::default(),
            frames: None,
            size: None,
            points: DEFAULT_POINTS,
            precisions: Vec::new(),
            runs: None,
            warmup: None,
            batch: 1,
            model: None,
            weights: None,
            device: DeviceChoice::default(),
        }
    }
}

/// What a pass through the clip is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BenchStage {
    /// It counts for nothing.
    Warmup,
    /// It is timed as a whole.
    Timed,
    /// Its layers are timed.
    Profiled,
}

/// How far a benchmark is: told before each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchProgress {
    /// The precision that is being measured.
    pub precision: Precision,
    /// What the next run is for.
    pub stage: BenchStage,
    /// Runs done, over all precisions.
    pub done: usize,
    /// All runs.
    pub total: usize,
}

/// The calls of the last profiled run of a precision, for a trace.
#[derive(Debug, Clone)]
pub struct BenchTrace {
    /// The precision.
    pub precision: Precision,
    /// In the order in which layers ended.
    pub calls: Vec<Call>,
}

/// What a benchmark found.
#[derive(Debug, Clone)]
pub struct BenchOutcome {
    /// Everything that a file keeps.
    pub report: BenchReport,
    /// One entry a precision.
    pub traces: Vec<BenchTrace>,
    /// What the reader should know about the figures, a sentence each.
    pub notes: Vec<String>,
}

impl Bench {
    /// Measures. `progress` is called before each run; `watch` may end the benchmark.
    ///
    /// # Errors
    /// A request that makes no sense, frames that cannot be read, weights that do not fit, a device or a precision
    /// that is missing, too little memory, or [`Error::Cancelled`].
    pub fn run(&self, watch: &Watch<'_>, progress: &dyn Fn(BenchProgress)) -> Result<BenchOutcome> {
        self.check()?;
        watch.cancel().check()?;
        let mut notes = Vec::new();
        let mut trackers = self.trackers(&mut notes)?;
        let Some(first) = trackers.first() else {
            return Err(Error::Device("the device has no precision at all".into()));
        };
        let own_device = first.device() != "cpu";
        let source = Source::open(&self.video, self.size, self.frames, &mut notes)?;
        let options = first.session_options();
        let expected = source.expected_frames();
        let needed = first
            .model
            .memory(source.size(), expected, self.points, &options);
        options.check_memory(needed)?;
        let machine = host::machine();
        let (device, before) = ceilings::of(first, &machine)?;
        let worked_on = self.size.unwrap_or(MODEL_SIZE);
        let settings = Settings {
            clip: source.name(),
            synthetic: source.is_synthetic(),
            frames: source.count(self.frames, watch)?,
            width: worked_on.width,
            height: worked_on.height,
            points: self.points,
            model: first.model().name().to_owned(),
            weights: first.weights().name.clone(),
            weights_sha256: first.weights().sha256.clone(),
            runs: self.runs.unwrap_or(if own_device { 20 } else { 3 }),
            warmup: self.warmup.unwrap_or(if own_device { 3 } else { 1 }),
            batch: self.batch,
        };
        let queries = queries(self.points, source.size());
        let each = settings.warmup + 2 * settings.runs;
        let count = trackers.len();
        let total = each * count;
        let (mut precisions, mut traces) = (Vec::new(), Vec::new());
        let mut ceilings = before;
        for (n, tracker) in trackers.drain(..).enumerate() {
            let told = |stage, done| {
                progress(BenchProgress {
                    precision: tracker.precision,
                    stage,
                    done: n * each + done,
                    total,
                });
            };
            let plan = Plan {
                tracker: &tracker,
                source: &source,
                queries: &queries,
                settings: &settings,
                watch,
                progress: &told,
            };
            let (record, calls) = measure(&plan)?;
            precisions.push(record);
            if n + 1 == count {
                let (_, after) = ceilings::of(&tracker, &machine)?;
                ceilings = better(&ceilings, &after);
            }
            traces.push(BenchTrace {
                precision: tracker.precision,
                calls,
            });
        }
        Ok(BenchOutcome {
            report: BenchReport {
                schema: SCHEMA.to_owned(),
                program: format!("track {}", env!("CARGO_PKG_VERSION")),
                commit: None,
                machine,
                device,
                ceilings,
                settings,
                precisions,
            },
            traces,
            notes,
        })
    }

    fn check(&self) -> Result<()> {
        let empty = |what: &str| {
            let sentence = format!("a benchmark of no {what} measures nothing; ask for at least 1");
            Err(Error::Request(sentence))
        };
        if self.points == 0 {
            return empty("points");
        }
        if self.frames == Some(0) {
            return empty("frames");
        }
        if self.runs == Some(0) {
            return empty("runs");
        }
        if self.batch == 0 {
            return empty("clips");
        }
        if self.size.is_some_and(|s| s.width == 0 || s.height == 0) {
            return empty("pixels");
        }
        Ok(())
    }

    /// One tracker a precision: those that were asked for, or all that the device has.
    fn trackers(&self, notes: &mut Vec<String>) -> Result<Vec<Tracker>> {
        let made_up = self.weights.is_none() && self.model == Some(ModelKind::LocoTrackBase);
        let folder: TempDir;
        let weights = match &self.weights {
            Some(path) => Weights::File(path.clone()),
            None if made_up => {
                folder = weights::folder()?;
                notes.push(
                    "no weights of locotrack-base come with the program, so made-up values stand in: the times are the same, the tracks mean nothing"
                        .to_owned(),
                );
                Weights::File(weights::write(ModelKind::LocoTrackBase, folder.path())?)
            }
            None => Weights::Default,
        };
        let builder = Tracker::builder()
            .weights(weights)
            .model(self.model)
            .device(self.device)
            .resolution(self.size.map_or(Resolution::Model, Resolution::Custom));
        let wanted: &[Precision] = if self.precisions.is_empty() {
            &Precision::ALL
        } else {
            &self.precisions
        };
        let mut trackers: Vec<Tracker> = Vec::new();
        for &precision in wanted {
            if trackers.iter().any(|t| t.precision == precision) {
                continue;
            }
            match builder.clone().precision(precision).build() {
                Ok(tracker) => trackers.push(tracker),
                // Nobody asked for it by name.
                Err(Error::Model(track_model::Error::Precision(_)))
                    if self.precisions.is_empty() => {}
                Err(e) => return Err(e),
            }
        }
        if made_up {
            for tracker in &mut trackers {
                tracker.weights = WeightsRecord {
                    name: MADE_UP.to_owned(),
                    sha256: String::new(),
                };
            }
        }
        Ok(trackers)
    }
}

/// The better of two measurements, because other programs may have been busy during one of them.
fn better(a: &Ceilings, b: &Ceilings) -> Ceilings {
    let mut best = a.clone();
    best.bandwidth_gbs = best.bandwidth_gbs.max(b.bandwidth_gbs);
    best.vector_tflops = best.vector_tflops.max(b.vector_tflops);
    for (dtype, rate) in &b.tflops {
        let known = best.tflops.entry(dtype.clone()).or_insert(*rate);
        *known = known.max(*rate);
    }
    best.launch_us = match (a.launch_us, b.launch_us) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    best
}

/// The picture that is fed into the models when nothing is said.
const MODEL_SIZE: Size = Size {
    width: 256,
    height: 256,
};

/// Points spread evenly but not on a lattice over the first frame, a thirty-second of a side from its border.
fn queries(points: usize, size: Size) -> Vec<Query> {
    // Multiples of the reciprocals of the plastic number and its square fill a square evenly at any count.
    let along = |i: usize, step: f64, side: usize| {
        let share = (0.5 + i as f64 * step).fract();
        (side as f64 * (1.0 + 30.0 * share) / 32.0) as f32
    };
    (0..points)
        .map(|i| Query {
            t: 0.0,
            x: along(i, 0.754_877_666_246_692_7, size.width),
            y: along(i, 0.569_840_290_998_053_3, size.height),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_apart_inside_the_picture() {
        let size = Size {
            width: 320,
            height: 32,
        };
        let all = queries(1000, size);
        for (i, q) in all.iter().enumerate() {
            assert!((10.0..=310.0).contains(&q.x) && (1.0..=31.0).contains(&q.y));
            assert!(all[..i].iter().all(|p| (p.x, p.y) != (q.x, q.y)));
        }
    }

    #[test]
    fn requests_for_nothing_are_refused() {
        let refused = |change: fn(&mut Bench)| {
            let mut bench = Bench::default();
            change(&mut bench);
            let error = bench.run(&Watch::new(), &|_| {}).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Usage);
            error.to_string()
        };
        assert!(refused(|b| b.points = 0).contains("no points"));
        assert!(refused(|b| b.frames = Some(0)).contains("no frames"));
        assert!(refused(|b| b.runs = Some(0)).contains("no runs"));
        assert!(refused(|b| b.batch = 0).contains("no clips"));
        let none = Size {
            width: 0,
            height: 4,
        };
        assert!(
            Bench {
                size: Some(none),
                ..Bench::default()
            }
            .check()
            .is_err()
        );
    }

    #[test]
    fn the_better_of_two_is_better_in_every_figure() {
        let ceilings = |bandwidth_gbs, launch_us, f32, vector_tflops| Ceilings {
            bandwidth_gbs,
            launch_us: Some(launch_us),
            tflops: [("f32".to_owned(), f32)].into(),
            vector_tflops,
            source: "measured".to_owned(),
        };
        let found = better(&ceilings(1.0, 5.0, 3.0, 2.0), &ceilings(2.0, 4.0, 1.0, 4.0));
        assert_eq!(found, ceilings(2.0, 4.0, 3.0, 4.0));
    }
}
