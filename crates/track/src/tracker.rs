//! The tracker: weights on a device, shared by as many threads as like to use it.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rayon::ThreadPool;
use sha2::{Digest, Sha256};
use track_model::{
    Device, ModelKind, PointTracker, Precision, Resolution, SessionOptions, WeightSource,
};

use crate::error::os_reason;
use crate::{Clip, Error, Queries, Result, Tracks, Watch, WeightsRecord, run, system};

/// The built-in weights: a safetensors file.
static DEFAULT_WEIGHTS: &[u8] = include_bytes!("../../../models/locotrack_small.safetensors");
/// What messages and outputs call them.
const DEFAULT_NAME: &str = "locotrack_small (built in)";
/// Share of the available memory that a run may take, so that the rest of the machine keeps breathing.
const MEMORY_SHARE: f64 = 0.8;

/// Which weights to load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Weights {
    /// The weights that are part of the program: LocoTrack-small.
    #[default]
    Default,
    /// A `.safetensors` file or a PyTorch checkpoint. Which model it is follows from its tensors.
    File(PathBuf),
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The first CUDA device if this build and the machine have one, the CPU otherwise.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this number.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    /// `auto`, `cpu`, `cuda` or `cuda:1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("'{text}' is no device; use auto, cpu, cuda or cuda:0");
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            other => {
                let number = other.strip_prefix("cuda:").ok_or_else(unknown)?;
                number.parse().map(Self::Cuda).map_err(|_| unknown())
            }
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(i) => write!(f, "cuda:{i}"),
        }
    }
}

/// How much memory a run may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MemoryBudget {
    /// Most of what is available when the run begins.
    #[default]
    Available,
    /// So many bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

impl MemoryBudget {
    /// In bytes, where `device` says what is free on a device of its own.
    fn bytes(self, device: Option<u64>) -> Option<u64> {
        match self {
            Self::Available => device
                .or_else(system::available_memory)
                .map(|b| (b as f64 * MEMORY_SHARE) as u64),
            Self::Bytes(bytes) => Some(bytes),
            Self::Unlimited => None,
        }
    }
}

/// Collects how a [`Tracker`] is to be built. Everything has a default.
#[derive(Debug, Clone, Default)]
pub struct TrackerBuilder {
    weights: Weights,
    model: Option<ModelKind>,
    device: DeviceChoice,
    precision: Precision,
    resolution: Resolution,
    memory: MemoryBudget,
    query_chunk: Option<usize>,
    threads: Option<usize>,
    check_finite: bool,
}

impl TrackerBuilder {
    /// Which weights to load; the built-in ones if not given.
    #[must_use]
    pub fn weights(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// The model that the weights must belong to; whatever they are if not given.
    #[must_use]
    pub fn model(mut self, expected: Option<ModelKind>) -> Self {
        self.model = expected;
        self
    }

    /// Where to compute.
    #[must_use]
    pub fn device(mut self, device: DeviceChoice) -> Self {
        self.device = device;
        self
    }

    /// The arithmetic; f32 if not given.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The picture that the model works on; its own resolution if not given.
    #[must_use]
    pub fn resolution(mut self, resolution: Resolution) -> Self {
        self.resolution = resolution;
        self
    }

    /// How much memory a run may take. It does not change a result.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.memory = budget;
        self
    }

    /// Points refined together; the model chooses if not given. It does not change a result.
    #[must_use]
    pub fn query_chunk(mut self, points: Option<usize>) -> Self {
        self.query_chunk = points;
        self
    }

    /// Threads that compute; one per core if not given. It does not change a result. With a number, the
    /// tracker has its own threads; without, it shares those of the process.
    #[must_use]
    pub fn threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Whether every layer's result is looked at, and a run ends at the first that is not finite, with an error that
    /// names the layer. Slow; for finding out whether a precision or a file of weights is fit.
    #[must_use]
    pub fn check_finite(mut self, check: bool) -> Self {
        self.check_finite = check;
        self
    }

    /// Loads the weights and makes the tracker.
    ///
    /// # Errors
    /// Weights that cannot be read or do not fit, a device that is not there, a precision that it does not have.
    pub fn build(&self) -> Result<Tracker> {
        if self.query_chunk == Some(0) || self.threads == Some(0) {
            return Err(Error::Request(
                "zero threads or zero points at a time do nothing; choose at least 1".to_owned(),
            ));
        }
        let (device, device_name) = device(self.device)?;
        self.precision
            .check(&device)
            .map_err(track_model::Error::from)?;
        let weights = match &self.weights {
            Weights::Default => default_weights(),
            Weights::File(path) => WeightsRecord {
                name: path.display().to_string(),
                sha256: file_sha256(path)?,
            },
        };
        let source = match &self.weights {
            Weights::Default => WeightSource::Embedded {
                name: DEFAULT_NAME,
                bytes: DEFAULT_WEIGHTS,
            },
            Weights::File(path) => WeightSource::File(path.clone()),
        };
        let model = track_model::load(&source, self.model, &device, self.precision)?;
        self.with_model(model, weights, (device, device_name))
    }

    /// The tracker around a loaded model. Apart from [`Self::build`], tests come here with models of their own.
    pub(crate) fn with_model(
        &self,
        model: Box<dyn PointTracker>,
        weights: WeightsRecord,
        (on, device): (Device, String),
    ) -> Result<Tracker> {
        let pool = self
            .threads
            .map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build())
            .transpose()
            .map_err(|e| Error::Device(format!("the threads could not be started ({e})")))?;
        Ok(Tracker {
            model,
            pool,
            weights,
            device,
            on,
            precision: self.precision,
            resolution: self.resolution,
            memory: self.memory,
            query_chunk: self.query_chunk,
            check_finite: self.check_finite,
        })
    }
}

/// A loaded model, ready to track. Threads may share it: a run borrows it and keeps nothing in it.
///
/// ```no_run
/// use track::{Clip, Queries, Tracker, Watch};
/// let tracker = Tracker::builder().build()?;
/// let clip = Clip::open("street.mp4")?;
/// let tracks = tracker.track(&clip, &Queries::grid(10), &Watch::new())?;
/// tracks.write("street.json")?;
/// # Ok::<(), track::Error>(())
/// ```
#[derive(Debug)]
pub struct Tracker {
    pub(crate) model: Box<dyn PointTracker>,
    pub(crate) pool: Option<ThreadPool>,
    pub(crate) weights: WeightsRecord,
    pub(crate) device: String,
    /// The device itself.
    pub(crate) on: Device,
    pub(crate) precision: Precision,
    pub(crate) resolution: Resolution,
    memory: MemoryBudget,
    query_chunk: Option<usize>,
    check_finite: bool,
}

impl Tracker {
    /// Starts with the defaults.
    pub fn builder() -> TrackerBuilder {
        TrackerBuilder::default()
    }

    /// Which model was loaded.
    pub fn model(&self) -> ModelKind {
        self.model.kind()
    }

    /// Which weights were loaded.
    pub fn weights(&self) -> &WeightsRecord {
        &self.weights
    }

    /// The arithmetic in use.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The device in use: `cpu`, or `cuda:0` and so on.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Follows every point through every frame of the clip, forwards and backwards.
    ///
    /// # Errors
    /// Frames that cannot be read, a clip without frames, points that do not lie in it, too little memory, a
    /// device that fails, or [`Error::Cancelled`].
    pub fn track(&self, clip: &Clip, queries: &Queries, watch: &Watch<'_>) -> Result<Tracks> {
        run::run(self, clip, queries, watch)
    }

    pub(crate) fn session_options(&self) -> SessionOptions {
        SessionOptions {
            resolution: self.resolution,
            query_chunk: self.query_chunk,
            memory_budget: self.memory.bytes(self.model.available_memory()),
            check_finite: self.check_finite,
        }
    }
}

/// Name and checksum of the built-in weights.
pub fn default_weights() -> WeightsRecord {
    // Hashing sixteen megabytes takes a moment; a process does it once.
    static RECORD: std::sync::OnceLock<WeightsRecord> = std::sync::OnceLock::new();
    RECORD
        .get_or_init(|| WeightsRecord {
            name: DEFAULT_NAME.to_owned(),
            sha256: hex(&Sha256::digest(DEFAULT_WEIGHTS)),
        })
        .clone()
}

fn file_sha256(path: &Path) -> Result<String> {
    sha256(path).map_err(|e| Error::WeightsFile {
        path: path.to_path_buf(),
        reason: os_reason(&e),
    })
}

/// SHA-256 of a file's bytes, in lower-case hexadecimal.
pub(crate) fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The device, and what outputs call it.
pub(crate) fn device(choice: DeviceChoice) -> Result<(Device, String)> {
    let cuda = |i: usize| Device::cuda(i).map(|device| (device, format!("cuda:{i}")));
    let cpu = || (Device::Cpu, "cpu".to_owned());
    match choice {
        DeviceChoice::Cpu => Ok(cpu()),
        DeviceChoice::Auto => Ok(cuda(0).unwrap_or_else(|reason| {
            tracing::info!("the CPU is used: {reason}");
            cpu()
        })),
        DeviceChoice::Cuda(i) => cuda(i).map_err(|reason| {
            Error::Device(format!(
                "device cuda:{i} is not available: {reason}; use --device cpu or auto"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_named() {
        for name in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for bad in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            assert!(bad.parse::<DeviceChoice>().is_err());
        }
    }

    #[test]
    fn a_tracker_is_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Tracker>();
        shared::<Clip>();
        shared::<Tracks>();
        shared::<Error>();
    }

    #[test]
    fn the_built_in_weights_are_the_ones_on_record() {
        assert_eq!(
            default_weights().sha256,
            "71d6525f937e1491255bd5973404e833aab4ef15a5ebd627e080897df1cc95fe"
        );
    }

    #[test]
    fn what_the_machine_lacks_is_refused_before_weights_are_read() {
        let missing = Weights::File("no such file".into());
        let error = Tracker::builder()
            .weights(missing.clone())
            .device(DeviceChoice::Cpu)
            .precision(Precision::F16)
            .build()
            .unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Device);
        let error = Tracker::builder().weights(missing).build().unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Weights);
        assert!(error.to_string().starts_with("no such file: cannot read"));
    }
}
