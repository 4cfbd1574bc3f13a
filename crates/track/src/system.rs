//! What the machine has to offer.

use track_model::{Device, DeviceInfo, Precision};

/// A CUDA device that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// What is known about it.
    pub info: DeviceInfo,
    /// What it can compute in, the most exact first.
    pub precisions: Vec<Precision>,
}

/// Whether this build can use CUDA devices where there are any.
pub fn built_with_cuda() -> bool {
    Device::built_with_cuda()
}

/// The CUDA devices in the driver's order, up to the first that cannot be used. Each is opened and its code loaded,
/// which takes a moment; nothing is computed.
///
/// # Errors
/// Why the first cannot be used, as the end of a sentence: a build without CUDA, no driver, one that does not answer,
/// no device, or one that is too old.
pub fn cuda_devices() -> Result<Vec<CudaDevice>, String> {
    let mut devices = Vec::new();
    loop {
        let ordinal = devices.len();
        match Device::cuda(ordinal) {
            Ok(device) => devices.extend(device.info().map(|info| CudaDevice {
                info,
                precisions: device.precisions(),
            })),
            Err(reason) if ordinal == 0 => return Err(reason),
            Err(reason) => {
                tracing::info!("devices end before cuda:{ordinal}: {reason}");
                return Ok(devices);
            }
        }
        if devices.len() == ordinal {
            return Ok(devices);
        }
    }
}

/// Bytes of memory that a new program may take without pushing others out: what the system says is
/// available, or what is left under the control group's limit where that is less. `None` where it is not known.
pub fn available_memory() -> Option<u64> {
    let free = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text));
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse().ok()
    };
    // "max" is no number, which leaves no limit.
    let group = number("memory.max")
        .zip(number("memory.current"))
        .map(|(limit, used)| limit.saturating_sub(used));
    match (free, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The line `MemAvailable:  123 kB` of Linux, in bytes.
fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The processor's vector extensions that matter for speed, by name.
pub fn cpu_features() -> Vec<&'static str> {
    let mut features = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! probe {
            ($($name:tt),*) => {
                $(if std::arch::is_x86_feature_detected!($name) { features.push($name); })*
            };
        }
        probe!(
            "sse4.2",
            "avx",
            "avx2",
            "fma",
            "f16c",
            "avx512f",
            "avx512vnni",
            "avx512bf16"
        );
    }
    #[cfg(target_arch = "aarch64")]
    {
        macro_rules! probe {
            ($($name:tt),*) => {
                $(if std::arch::is_aarch64_feature_detected!($name) { features.push($name); })*
            };
        }
        probe!("neon", "fp16", "dotprod", "bf16", "sve");
    }
    features.shrink_to_fit();
    features
}

/// Threads that a tracker uses when it is not told.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_line_is_read_in_bytes() {
        let text = "MemTotal:       100 kB\nMemFree:  1 kB\nMemAvailable:     42 kB\n";
        assert_eq!(meminfo(text), Some(42 * 1024));
        assert_eq!(meminfo("MemTotal: 1 kB\n"), None);
        assert_eq!(meminfo("MemAvailable: lots\n"), None);
    }

    #[test]
    fn there_is_at_least_one_thread() {
        assert!(threads() >= 1);
    }
}
