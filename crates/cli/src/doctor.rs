//! What this program and this machine offer, for a report of a problem or a quick look.

use std::fmt::Write;

use serde::Serialize;
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
    /// Each device with the precisions that it offers.
    devices: Vec<Device>,
    weights: track::WeightsRecord,
    /// Whether the built-in weights load, and what stands in the way if not.
    weights_load: Result<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    available: Result<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct Model {
    name: &'static str,
    /// Whether weights for it come with the program.
    built_in: Option<track::WeightsRecord>,
    licence: Option<&'static str>,
    weights: &'static str,
}

/// `track doctor`.
pub(crate) fn doctor(json: bool) -> Result<String, Failure> {
    let load = |device: DeviceChoice| {
        let built = Tracker::builder().device(device).build();
        built.map(|_| "yes").map_err(|e| e.to_string())
    };
    let on_cpu = load(DeviceChoice::Cpu);
    let report = Doctor {
        track: env!("CARGO_PKG_VERSION"),
        ffmpeg: track::ffmpeg_version(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        cpu_features: system::cpu_features(),
        threads: system::threads(),
        available_memory_bytes: system::available_memory(),
        devices: vec![
            Device {
                name: "cpu".into(),
                available: Ok("yes"),
            },
            Device {
                name: "cuda:0".into(),
                available: load(DeviceChoice::Cuda(0)),
            },
        ],
        weights: default_weights(),
        weights_load: on_cpu,
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
    for device in &report.devices {
        line(&device.name, said(&device.available));
    }
    line("weights", &report.weights.name);
    line("", &format!("sha256 {}", report.weights.sha256));
    line("", &format!("load: {}", said(&report.weights_load)));
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
    let _ = writeln!(text, "precisions       {}; a CPU has f32", names.join(", "));
    Ok(text)
}

fn said<'a>(answer: &'a Result<&'static str, String>) -> &'a str {
    match answer {
        Ok(text) => text,
        Err(reason) => reason,
    }
}

fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    Ok(text + "\n")
}
