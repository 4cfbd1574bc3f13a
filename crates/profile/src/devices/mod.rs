//! Devices that a report can be carried over to: what their makers promise, and where that is written.
//!
//! Rates are *dense* (no structured sparsity), at boost clocks, with products that accumulate in f32. They
//! are datasheet figures unless a note says otherwise. What a good library reaches of them is kept apart,
//! in [`Reachable`], with its own word on where the figure comes from.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::Ceilings;

/// The precisions that a device may offer for products, in the order in which they are listed.
pub const DTYPES: [&str; 4] = ["f32", "tf32", "f16", "bf16"];

/// A device by its datasheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What is typed: lower-case letters, digits and hyphens.
    pub name: String,
    /// What is read: the maker's name for it.
    pub title: String,
    /// CUDA compute capability as "7.5"; absent where there is none.
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// Memory in GiB, as sold; part of it is taken by the driver.
    pub memory_gib: f64,
    /// Memory bandwidth in GB/s (10⁹ bytes).
    pub bandwidth_gbs: f64,
    /// Last-level cache in MiB.
    #[serde(default)]
    pub l2_mib: Option<f64>,
    /// Base and boost clock in MHz, where the difference matters. Rates are at boost.
    #[serde(default)]
    pub clock_mhz: Option<(f64, f64)>,
    /// f32 arithmetic outside matrix products, TFLOP/s.
    pub vector_tflops: f64,
    /// Dense products by precision, TFLOP/s. A precision that is absent is not offered.
    pub tflops: BTreeMap<String, f64>,
    /// What one launch costs at least, in µs: an assumption, see [`LAUNCH_US`].
    #[serde(default = "launch_us")]
    pub launch_us: f64,
    /// What good code reaches of the figures above.
    #[serde(default)]
    pub reachable: Reachable,
    /// Where the figures stand.
    #[serde(default)]
    pub sources: Vec<String>,
    /// What a reader of the figures should know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Shares, 0 to 1, of a datasheet's rates that good code reaches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reachable {
    /// Of the bandwidth, by a large copy.
    pub bandwidth: f64,
    /// Of the f32 arithmetic outside products.
    pub vector: f64,
    /// Of f32 products.
    pub f32: f64,
    /// Of tf32, f16 and bf16 products on Tensor Cores or their like.
    pub tensor: f64,
    /// "measured", or how the shares were assumed.
    pub source: String,
}

/// A launch inside a captured graph: 256 small kernels took 0.18 ms on an H200, 0.7 µs each. One number for
/// every device; it decides little unless layers are tiny.
pub const LAUNCH_US: f64 = 1.0;

/// A launch by the host, one at a time: 5.8 µs measured on an H200.
pub const HOST_LAUNCH_US: f64 = 5.8;

/// The share of a device's memory that a program can use: the driver, its context and error-correcting
/// codes take the rest.
const USABLE_MEMORY: f64 = 0.92;

fn launch_us() -> f64 {
    LAUNCH_US
}

impl Default for Reachable {
    /// What large products and a large copy reached on an H200, taken over for a device that nobody measured.
    fn default() -> Self {
        Self {
            bandwidth: 4250.0 / 4800.0,
            vector: 48.6 / 66.9,
            f32: 48.6 / 66.9,
            tensor: 386.0 / 494.7,
            source: "assumed, as measured on an H200".to_owned(),
        }
    }
}

impl Reachable {
    /// The share for products of a precision.
    pub fn products(&self, dtype: &str) -> f64 {
        if dtype == "f32" {
            self.f32
        } else {
            self.tensor
        }
    }
}

/// Why a device of a user's own cannot be used. One sentence each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault(String);

impl std::fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceFault {}

impl Device {
    /// Every device of the table.
    pub fn all() -> Vec<Self> {
        table::devices()
    }

    /// The device of this name, written with or without its maker, hyphens and capitals: `t4`, `A100-80GB`,
    /// `NVIDIA GeForce RTX 4090`. A name without a variant is the first of its kind: `a100` has 40 GB.
    pub fn named(name: &str) -> Option<Self> {
        let wanted = plain(name);
        Self::all().into_iter().find(|device| {
            plain(&device.name) == wanted
                || plain(&device.title) == wanted
                || table::OTHER_NAMES
                    .iter()
                    .any(|(other, own)| plain(other) == wanted && *own == device.name)
        })
    }

    /// Whether products in this precision are offered.
    pub fn offers(&self, dtype: &str) -> bool {
        self.tflops.contains_key(dtype)
    }

    /// The precisions offered, in the order of [`DTYPES`].
    pub fn dtypes(&self) -> Vec<&str> {
        let offered = DTYPES.into_iter().filter(|dtype| self.offers(dtype));
        offered.collect()
    }

    /// The precisions of [`DTYPES`] that it lacks.
    pub fn lacks(&self) -> Vec<&'static str> {
        let lacking = DTYPES.into_iter().filter(|dtype| !self.offers(dtype));
        lacking.collect()
    }

    /// Bytes of memory that a program can use.
    pub fn usable_memory(&self) -> u64 {
        (self.memory_gib * f64::from(1 << 30) * USABLE_MEMORY) as u64
    }

    /// Whether `track` has device code for it: CUDA, compute capability 7.5 or above.
    pub fn runs_track(&self) -> bool {
        let parse = |part: &str| part.parse::<u32>().ok();
        let capability = self.compute_capability.as_deref();
        let parts = capability.and_then(|cc| cc.split_once('.'));
        let version = parts.and_then(|(major, minor)| Some((parse(major)?, parse(minor)?)));
        version.is_some_and(|version| version >= (7, 5))
    }

    /// The roofs at the datasheet's rates.
    pub fn ceilings(&self) -> Ceilings {
        Ceilings {
            bandwidth_gbs: self.bandwidth_gbs,
            launch_us: Some(self.launch_us),
            tflops: self.tflops.clone(),
            vector_tflops: self.vector_tflops,
            source: self.name.clone(),
        }
    }

    /// The roofs that good code reaches.
    pub fn reachable_ceilings(&self) -> Ceilings {
        let share =
            |(dtype, rate): (&String, &f64)| (dtype.clone(), rate * self.reachable.products(dtype));
        Ceilings {
            bandwidth_gbs: self.bandwidth_gbs * self.reachable.bandwidth,
            launch_us: Some(self.launch_us),
            tflops: self.tflops.iter().map(share).collect(),
            vector_tflops: self.vector_tflops * self.reachable.vector,
            source: format!("{}, reachable share", self.name),
        }
    }

    /// Checks a device that a user described.
    ///
    /// # Errors
    /// A sentence naming the field whose number makes no sense.
    pub fn check(&self) -> Result<(), DeviceFault> {
        let fault = |text: String| Err(DeviceFault(text));
        if plain(&self.name).is_empty() || self.title.trim().is_empty() {
            return fault("name and title must not be empty".to_owned());
        }
        let rates = self
            .tflops
            .iter()
            .map(|(dtype, rate)| (dtype.as_str(), rate));
        let numbers = [
            ("memory_gib", &self.memory_gib),
            ("bandwidth_gbs", &self.bandwidth_gbs),
            ("vector_tflops", &self.vector_tflops),
        ];
        for (field, number) in numbers.into_iter().chain(rates) {
            if !(number.is_finite() && *number > 0.0) {
                return fault(format!("{field} must be above 0, not {number}"));
            }
        }
        if !(self.launch_us.is_finite() && self.launch_us >= 0.0) {
            return fault(format!(
                "launch_us must be 0 or more, not {}",
                self.launch_us
            ));
        }
        let known = |dtype: &String| DTYPES.contains(&dtype.as_str());
        if let Some(dtype) = self.tflops.keys().find(|dtype| !known(dtype)) {
            let names = DTYPES.join(", ");
            return fault(format!("tflops has {dtype}, which is none of {names}"));
        }
        if !self.offers("f32") {
            return fault(
                "tflops must have f32, which every other precision is compared with".into(),
            );
        }
        let r = &self.reachable;
        for (field, share) in [
            ("reachable.bandwidth", r.bandwidth),
            ("reachable.vector", r.vector),
            ("reachable.f32", r.f32),
            ("reachable.tensor", r.tensor),
        ] {
            if !(share > 0.0 && share <= 1.0) {
                return fault(format!(
                    "{field} must be above 0 and at most 1, not {share}"
                ));
            }
        }
        Ok(())
    }
}

/// A name without what people write differently.
fn plain(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !matches!(*w, "nvidia" | "amd" | "tesla" | "geforce" | "instinct"));
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_makes_sense_and_says_where_its_figures_stand() {
        for device in Device::all() {
            device.check().unwrap();
            assert!(!device.sources.is_empty(), "{}", device.name);
            assert_eq!(Device::named(&device.name).unwrap(), device);
            assert_eq!(Device::named(&device.title).unwrap(), device);
            // f16 and bf16 never have different rates, and products are never slower than other arithmetic.
            if let (Some(half), Some(brain)) = (device.tflops.get("f16"), device.tflops.get("bf16"))
            {
                assert_eq!(half, brain, "{}", device.name);
            }
            assert!(
                device.tflops["f32"] >= device.vector_tflops,
                "{}",
                device.name
            );
            assert!(
                device.tflops["f16"] > device.tflops["f32"],
                "{}",
                device.name
            );
        }
    }

    #[test]
    fn precisions_that_a_generation_lacks_are_not_offered() {
        for (name, lacks) in [
            ("t4", vec!["tf32", "bf16"]),
            ("v100", vec!["tf32", "bf16"]),
            ("mi250x", vec!["tf32"]),
            ("a100", vec![]),
        ] {
            assert_eq!(Device::named(name).unwrap().lacks(), lacks, "{name}");
        }
    }

    #[test]
    fn names_are_found_as_people_and_drivers_write_them() {
        for (typed, name) in [
            ("T4", "t4"),
            ("Tesla T4", "t4"),
            ("A100", "a100"),
            ("NVIDIA A100-SXM4-40GB", "a100"),
            ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("NVIDIA H200", "h200"),
            ("rtx 4090", "rtx4090"),
            ("NVIDIA GeForce RTX 3090", "rtx3090"),
            ("3090", "rtx3090"),
        ] {
            assert_eq!(Device::named(typed).unwrap().name, name, "{typed}");
        }
        assert_eq!(Device::named("t5"), None);
        assert_eq!(Device::named(""), None);
    }

    #[test]
    fn only_cuda_from_7_5_on_runs_track() {
        let runs = |name: &str| Device::named(name).unwrap().runs_track();
        assert!(runs("t4") && runs("l4") && runs("h200"));
        assert!(!runs("v100") && !runs("mi250x"));
    }

    #[test]
    fn devices_of_a_user_are_checked() {
        let t4 = Device::named("t4").unwrap();
        let wrong = |change: fn(&mut Device)| {
            let mut device = t4.clone();
            change(&mut device);
            device.check().unwrap_err().to_string()
        };
        assert!(wrong(|d| d.bandwidth_gbs = 0.0).contains("bandwidth_gbs"));
        assert!(wrong(|d| d.memory_gib = f64::NAN).contains("memory_gib"));
        assert!(wrong(|d| d.reachable.tensor = 1.5).contains("reachable.tensor"));
        assert!(wrong(|d| d.tflops.extend([("int8".into(), 1.0)])).contains("int8"));
        assert!(wrong(|d| d.tflops.retain(|dtype, _| dtype != "f32")).contains("f32"));
        assert!(wrong(|d| d.name = "-".into()).contains("name"));
        assert!(wrong(|d| d.launch_us = -1.0).contains("launch_us"));
    }

    #[test]
    fn reachable_roofs_are_shares_of_the_datasheet() {
        let h200 = Device::named("h200").unwrap();
        let (sheet, reached) = (h200.ceilings(), h200.reachable_ceilings());
        assert!((reached.bandwidth_gbs - 4250.0).abs() < 1.0);
        assert!((reached.tflops["f32"] - 48.6).abs() < 0.1);
        assert_eq!(sheet.tflops["bf16"], 989.4);
        assert_eq!(sheet.launch_us, reached.launch_us);
    }
}
