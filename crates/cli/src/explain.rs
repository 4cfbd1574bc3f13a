//! `track explain`: a benchmark's report carried over to other devices.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use track::profile::devices::Device;
use track::profile::explain::{Observation, device_table, explain};
use track::profile::record::{self, BenchReport};

use crate::fail::{Failure, code, usage};

/// Devices that a report is carried over to when none are named.
const DEFAULT_DEVICES: [&str; 2] = ["t4", "a100"];

const EXAMPLES: &str = "\
Examples:
  track bench --json report.json && track explain report.json
      What each part of the model costs here, on a T4 and on an A100 at least, and what to change first.
  track explain report.json --on l4,rtx4090 --layers
      The same for other devices, with a table of every layer.
  track explain report.json --observed t4=85s,a100=0.5s
      How much of the difference between two times that you saw does the hardware explain?
  track explain --devices
      The table of devices, with the source of every figure.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// A report that 'track bench --json' wrote.
    #[arg(value_name = "REPORT", required_unless_present = "devices")]
    report: Option<PathBuf>,

    /// Devices to carry the report over to, by names of 'track explain --devices', or all [default: t4,a100].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    on: Vec<String>,

    /// Times that you saw for this clip in f32, as t4=85s,a100=500ms: how much does the hardware explain?
    #[arg(long, value_name = "NAME=TIME", value_delimiter = ',')]
    observed: Vec<ObservedArg>,

    /// A device of your own, in the form of 'track explain --devices --json'. May be given again.
    #[arg(long, value_name = "FILE")]
    device_file: Vec<PathBuf>,

    /// Add a table of every layer.
    #[arg(long)]
    layers: bool,

    /// Print the table of devices and the sources of its figures.
    #[arg(long, conflicts_with_all = ["report", "on", "observed", "layers"])]
    devices: bool,

    /// For machines.
    #[arg(long)]
    json: bool,
}

/// A device and a time as they are typed.
#[derive(Debug, Clone, PartialEq)]
struct ObservedArg {
    device: String,
    seconds: f64,
}

impl FromStr for ObservedArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "write a device and a time, for example t4=85s or a100=500ms";
        let (device, time) = text.split_once('=').ok_or(expected)?;
        let time = time.trim();
        // "ms" first, because "s" ends it too.
        let units = [("ms", 1e-3), ("min", 60.0), ("s", 1.0)];
        let seconds = units.into_iter().find_map(|(unit, seconds)| {
            let number: f64 = time.strip_suffix(unit)?.trim().parse().ok()?;
            Some(number * seconds)
        });
        match seconds {
            Some(seconds) if seconds.is_finite() && seconds > 0.0 && !device.trim().is_empty() => {
                Ok(Self {
                    device: device.trim().to_owned(),
                    seconds,
                })
            }
            _ => Err(expected.to_owned()),
        }
    }
}

/// What `track explain` prints.
pub(crate) fn run(args: &ExplainArgs) -> Result<String, Failure> {
    let own: Vec<Device> = args
        .device_file
        .iter()
        .map(|path| read_device(path))
        .collect::<Result<_, _>>()?;
    // A user's device goes before one of the table that has its name.
    let table = Device::all().into_iter();
    let known: Vec<Device> = own
        .iter()
        .cloned()
        .chain(table.filter(|d| own.iter().all(|mine| mine.name != d.name)))
        .collect();
    let Some(path) = args.report.as_deref().filter(|_| !args.devices) else {
        return if args.json {
            to_json(&known)
        } else {
            Ok(device_table(&known))
        };
    };
    let observed: Vec<Observation> = args
        .observed
        .iter()
        .map(|seen| {
            let device = find(&known, &seen.device)?.name;
            Ok(Observation {
                device,
                seconds: seen.seconds,
            })
        })
        .collect::<Result<_, Failure>>()?;
    if let Some((i, seen)) = observed.iter().enumerate().find(|(i, seen)| {
        observed[..*i]
            .iter()
            .any(|before| before.device == seen.device)
    }) {
        let typed = &args.observed[i].device;
        return Err(usage(format!(
            "--observed has two times for {}: {typed}",
            seen.device
        )));
    }
    let devices = chosen(args, &known, &own, &observed)?;
    let report = read_report(path)?;
    let explanation = explain(&report, &devices, &observed)
        .map_err(|fault| input(format!("{} cannot be explained: {fault}", path.display())))?;
    if args.json {
        to_json(&explanation)
    } else {
        Ok(explanation.text(args.layers))
    }
}

/// The devices to carry over to: those named, else the observed ones and the user's own, else the default.
fn chosen(
    args: &ExplainArgs,
    known: &[Device],
    own: &[Device],
    observed: &[Observation],
) -> Result<Vec<Device>, Failure> {
    if args.on.iter().any(|name| name == "all") {
        return Ok(known.to_vec());
    }
    let mut names: Vec<&str> = args.on.iter().map(String::as_str).collect();
    names.extend(observed.iter().map(|seen| seen.device.as_str()));
    if names.is_empty() && own.is_empty() {
        names.extend(DEFAULT_DEVICES);
    }
    let mut devices = own.to_vec();
    for name in names {
        let device = find(known, name)?;
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    Ok(devices)
}

fn find(known: &[Device], name: &str) -> Result<Device, Failure> {
    let name = name.trim();
    let exact = known
        .iter()
        .find(|device| device.name.eq_ignore_ascii_case(name));
    let listed = exact.cloned().or_else(|| Device::named(name));
    listed.ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|device| device.name.as_str()).collect();
        usage(format!(
            "there is no device {name:?} in the table; it has {}",
            names.join(", ")
        ))
    })
}

fn read_report(path: &Path) -> Result<BenchReport, Failure> {
    let shown = path.display();
    let text = read(path)?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| {
        input(format!(
            "{shown} is not JSON, so not a report of track bench: {e}"
        ))
    })?;
    let schema = value.get("schema").and_then(serde_json::Value::as_str);
    if schema != Some(record::SCHEMA) {
        let found = schema.map_or_else(
            || "has no schema".to_owned(),
            |s| format!("has the schema {s:?}"),
        );
        let expected = record::SCHEMA;
        return Err(input(format!(
            "{shown} is not a report of track bench: it {found}, and {expected:?} was expected"
        )));
    }
    serde_json::from_value(value).map_err(|e| input(format!("{shown} is a damaged report: {e}")))
}

fn read_device(path: &Path) -> Result<Device, Failure> {
    let shown = path.display();
    let device: Device = serde_json::from_str(&read(path)?)
        .map_err(|e| input(format!("{shown} does not describe a device: {e}")))?;
    device
        .check()
        .map_err(|fault| input(format!("{shown} does not describe a device: {fault}")))?;
    Ok(device)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|e| input(format!("{} cannot be read: {e}", path.display())))
}

/// A failure for which a file is to blame.
fn input(message: String) -> Failure {
    Failure {
        code: code::INPUT,
        error: anyhow::Error::msg(message),
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_times_have_a_device_and_a_unit() {
        let seen = |text: &str| text.parse::<ObservedArg>().map(|o| (o.device, o.seconds));
        assert_eq!(seen("t4=85s"), Ok(("t4".into(), 85.0)));
        assert_eq!(seen("a100=500ms"), Ok(("a100".into(), 0.5)));
        assert_eq!(seen("x = 1.5 min"), Ok(("x".into(), 90.0)));
        for bad in [
            "", "t4", "t4=", "t4=85", "t4=-1s", "t4=0s", "=1s", "t4=NaNs", "t4=infs", "t4=1h",
        ] {
            assert!(seen(bad).unwrap_err().contains("t4=85s"), "{bad}");
        }
    }
}
