//! What this program and this machine offer, for a report of a problem or a quick look.

use std::fmt::Write;

use serde::Serialize;
use track::system::CudaDevice;
use track::{DeviceChoice, ModelKind, Precision, Tracker, default_weights, system};

use crate::fail::Failure;

#[derive(Debug, Serialize)]
struct Doctor {
    track: &'static str,
    ffmpeg: Option<String>,
    system: String,
    cpu_features: Vec<&'static str>,
    threads: usize,
    available_memory_bytes: Option<u64>,
    cuda: Cuda,
    /// Each device that can be used with the precisions that it offers; the CPU first.
    devices: Vec<Device>,
    weights: track::WeightsRecord,
    /// Whether the built-in weights load, and what stands in the way if not.
    weights_load: Result<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct Cuda {
    /// Whether this build can use CUDA devices.
    built_in: bool,
    /// Why it has none here.
    unavailable: Option<String>,
}

#[derive(Debug, Serialize)]
struct Device {
    /// What `--device` calls it.
    name: String,
    precisions: Vec<&'static str>,
    /// What is known about a CUDA device.
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware: Option<Hardware>,
}

#[derive(Debug, Serialize)]
struct Hardware {
    name: String,
    compute_capability: String,
    memory_bytes: u64,
    multiprocessors: u32,
    /// The newest CUDA version that the driver knows.
    driver_cuda: String,
    /// The device code that runs: `sm_` machine code, `compute_` code that the driver finished.
    code: String,
}

#[derive(Debug, Serialize)]
struct Model {
    name: &'static str,
    /// Whether weights for it come with the program.
    built_in: Option<track::WeightsRecord>,
    licence: Option<&'static str>,
    weights: &'static str,
}

impl Device {
    fn cuda(ordinal: usize, found: &CudaDevice) -> Self {
        let info = &found.info;
        Self {
            name: format!("cuda:{ordinal}"),
            precisions: found.precisions.iter().map(|p| p.name()).collect(),
            hardware: Some(Hardware {
                name: info.name.clone(),
                compute_capability: format!("{}.{}", info.capability.0, info.capability.1),
                memory_bytes: info.memory,
                multiprocessors: info.multiprocessors,
                driver_cuda: info.driver.clone(),
                code: info.code.clone(),
            }),
        }
    }

    /// The values of its lines.
    fn lines(&self) -> Vec<String> {
        let precisions = self.precisions.join(", ");
        let Some(hardware) = &self.hardware else {
            return vec![precisions];
        };
        let code = if hardware.code.starts_with("sm_") {
            format!("machine code {}", hardware.code)
        } else {
            format!("{} code, finished by the driver", hardware.code)
        };
        vec![
            format!(
                "{}: compute capability {}, {} multiprocessors, {:.1} GiB",
                hardware.name,
                hardware.compute_capability,
                hardware.multiprocessors,
                hardware.memory_bytes as f64 / f64::from(1 << 30)
            ),
            format!("driver for CUDA {}, {code}", hardware.driver_cuda),
            precisions,
        ]
    }
}

impl Cuda {
    fn said(&self) -> String {
        match (&self.unavailable, self.built_in) {
            (None, _) => "in this build, see below".to_owned(),
            (Some(reason), true) => format!("in this build; {reason}"),
            (Some(_), false) => "not in this build".to_owned(),
        }
    }
}

/// `track doctor`.
pub(crate) fn doctor(json: bool) -> Result<String, Failure> {
    let on_cpu = Tracker::builder().device(DeviceChoice::Cpu).build();
    let mut devices = vec![Device {
        name: "cpu".to_owned(),
        precisions: vec![Precision::F32.name()],
        hardware: None,
    }];
    let unavailable = match system::cuda_devices() {
        Ok(found) => {
            devices.extend(found.iter().enumerate().map(|(i, d)| Device::cuda(i, d)));
            None
        }
        Err(reason) => Some(reason),
    };
    let report = Doctor {
        track: env!("CARGO_PKG_VERSION"),
        ffmpeg: track::ffmpeg_version(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu_features: system::cpu_features(),
        threads: system::threads(),
        available_memory_bytes: system::available_memory(),
        cuda: Cuda {
            built_in: system::built_with_cuda(),
            unavailable,
        },
        devices,
        weights: default_weights(),
        weights_load: on_cpu.map(|_| "yes").map_err(|e| e.to_string()),
    };
    if json {
        return to_json(&report);
    }
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    line("track", report.track);
    line(
        "ffmpeg",
        report.ffmpeg.as_deref().unwrap_or("not in this build"),
    );
    line("system", &report.system);
    line("processor", &report.cpu_features.join(" "));
    line("threads", &report.threads.to_string());
    let memory = report.available_memory_bytes.map_or_else(
        || "not known".to_owned(),
        |bytes| format!("{} MiB available", bytes >> 20),
    );
    line("memory", &memory);
    line("cuda", &report.cuda.said());
    for device in &report.devices {
        for (k, value) in device.lines().iter().enumerate() {
            line(if k == 0 { &device.name } else { "" }, value);
        }
    }
    line("weights", &report.weights.name);
    line("", &format!("sha256 {}", report.weights.sha256));
    let load = match &report.weights_load {
        Ok(text) => text,
        Err(reason) => reason.as_str(),
    };
    line("", &format!("load: {load}"));
    Ok(text)
}

/// `track models`.
pub(crate) fn models(json: bool) -> Result<String, Failure> {
    let models: Vec<Model> = ModelKind::ALL
        .into_iter()
        .map(|kind| {
            let built_in = kind == ModelKind::LocoTrackSmall;
            Model {
                name: kind.name(),
                built_in: built_in.then(default_weights),
                licence: built_in.then_some("MIT OR Apache-2.0"),
                weights: match kind {
                    ModelKind::LocoTrackSmall => "built in; or --weights locotrack_small.ckpt",
                    ModelKind::LocoTrackBase => "--weights locotrack_base.ckpt",
                    _ => "--weights FILE",
                },
            }
        })
        .collect();
    if json {
        return to_json(&models);
    }
    let mut text = String::new();
    for model in &models {
        let _ = writeln!(text, "{:<16} {}", model.name, model.weights);
        if let Some(record) = &model.built_in {
            let licence = model.licence.unwrap_or("unknown");
            let _ = writeln!(text, "{:<16} sha256 {}", "", record.sha256);
            let _ = writeln!(text, "{:<16} licence {licence}", "");
        }
    }
    let names: Vec<_> = Precision::ALL.iter().map(|p| p.name()).collect();
    let _ = writeln!(
        text,
        "precisions       {}; a CPU has f32, `track doctor` says what else is there",
        names.join(", ")
    );
    Ok(text)
}

fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    Ok(text + "\n")
}
