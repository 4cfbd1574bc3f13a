//! `--device` on machines without a CUDA device that can be used: no driver, libraries that only look like one, a driver
//! without devices. Real devices are hidden from the program, so that all of this is tested on every machine. What a
//! build without CUDA says is tested in such a build.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Place, pgm};

/// The exit code for devices.
const DEVICE: i32 = 5;

/// Every entry point that a driver must have, as the program knows it.
const ENTRIES: &[&str] = include!("../../kernels/src/cuda/entries.in");

/// A library in the driver's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// Whatever the machine has, its devices hidden.
    Hidden,
    /// A library of the right name with nothing in it.
    Empty,
    /// No library at all, but a file of its name.
    Text,
    /// Every function fails with a number that nobody knows.
    Stub,
    /// What a toolkit brings to link against, which fails with words of its own.
    Toolkit,
    /// A driver on a machine that has no device.
    NoDevice,
    /// A driver that starts, but has no device of that number.
    OtherDevice,
}

impl Driver {
    /// The end of the sentence that a build for CUDA says.
    fn reasons(self) -> &'static [&'static str] {
        match self {
            Self::Hidden | Self::Text => &[
                "no NVIDIA driver is installed (libcuda was not found)",
                "the NVIDIA driver sees no device",
            ],
            Self::Empty => &["the NVIDIA driver's library is incomplete or far too old"],
            Self::Stub => &["the NVIDIA driver does not answer: error 999"],
            Self::Toolkit => &["the NVIDIA driver does not answer: CUDA driver is a stub library"],
            Self::NoDevice => &["the NVIDIA driver sees no device"],
            Self::OtherDevice => &["there is no device 0; the NVIDIA driver sees 0"],
        }
    }

    /// Its source in C; `None` where there is nothing to compile.
    fn source(self) -> Option<String> {
        let failing = |number: u32, except: &[&str]| -> String {
            ENTRIES
                .iter()
                .filter(|name| !except.contains(name))
                .map(|name| format!("int {name}(void) {{ return {number}; }}\n"))
                .collect()
        };
        let words = |text: &str| {
            format!(
                "int cuGetErrorString(int e, const char **s) {{ *s = \"{text}\"; return 0; }}\n"
            )
        };
        match self {
            Self::Hidden | Self::Text => None,
            Self::Empty => Some("int nothing;\n".to_owned()),
            Self::Stub => Some(failing(999, &[])),
            Self::Toolkit => {
                Some(failing(34, &["cuGetErrorString"]) + &words("CUDA driver is a stub library"))
            }
            Self::NoDevice => Some(failing(100, &["cuGetErrorString"]) + &words("no device")),
            Self::OtherDevice => Some(
                failing(101, &["cuGetErrorString", "cuInit", "cuDeviceGetCount"])
                    + &words("invalid device")
                    + "int cuInit(unsigned f) { return 0; }\n"
                    + "int cuDeviceGetCount(int *n) { *n = 0; return 0; }\n",
            ),
        }
    }
}

/// A machine with this driver and a still to track.
struct Machine {
    place: Place,
    driver: Driver,
    libraries: PathBuf,
}

impl Machine {
    /// Every machine that can be made here: without a C compiler, those without a library of ours.
    fn all() -> Vec<Self> {
        use Driver::{Empty, Hidden, NoDevice, OtherDevice, Stub, Text, Toolkit};
        [Hidden, Empty, Text, Stub, Toolkit, NoDevice, OtherDevice]
            .into_iter()
            .filter_map(Self::new)
            .collect()
    }

    fn new(driver: Driver) -> Option<Self> {
        let place = Place::new();
        place.write("still.pgm", pgm(40, 30, |x, y| (x + y) % 7 < 3));
        let libraries = place.path("lib");
        std::fs::create_dir(&libraries).unwrap();
        // The names in the order in which they are tried; a machine may have either.
        let names = ["libcuda.so", "libcuda.so.1"].map(|name| libraries.join(name));
        if driver == Driver::Text {
            for name in &names {
                std::fs::write(name, "no library\n").unwrap();
            }
        }
        if let Some(source) = driver.source() {
            let file = place.write("driver.c", source);
            let compiled = Command::new("cc")
                .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
                .arg(&names[0])
                .arg(&file)
                .status();
            std::fs::remove_file(file).unwrap();
            if !compiled.is_ok_and(|status| status.success()) {
                eprintln!("skipped, no C compiler: {driver:?}");
                return None;
            }
            std::fs::copy(&names[0], &names[1]).unwrap();
        }
        Some(Self {
            place,
            driver,
            libraries,
        })
    }

    /// Runs the program where backtraces are on: exit code, standard output, error stream. None has a panic.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self
            .place
            .command(arguments)
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("RUST_BACKTRACE", "1")
            .env_remove("TRACK_FORCE_ARCH")
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, errors) = (text(output.stdout), text(output.stderr));
        assert!(!errors.contains("panicked"), "{:?}: {errors}", self.driver);
        (output.status.code().unwrap(), out, errors)
    }

    /// Why there is no device, among the reasons that may be given.
    fn expects(&self, text: &str) {
        let reasons = if cfg!(feature = "cuda") {
            self.driver.reasons()
        } else {
            &["this build has no CUDA"]
        };
        assert!(
            reasons.iter().any(|reason| text.contains(reason)),
            "{:?}: {text}",
            self.driver
        );
    }
}

#[test]
fn a_device_that_was_asked_for_is_refused_in_one_sentence() {
    let commands: [&[&str]; 4] = [
        &["still.pgm", "--grid=2", "-o=a.json"],
        &["still.pgm", "--grid=2", "-o=a.json", "--dtype=f16"],
        &["bench", "still.pgm", "--points=4"],
        &["golden", "record", "still.pgm", "--grid=2", "-o=goldens"],
    ];
    for machine in Machine::all() {
        for command in commands {
            let arguments = [command, &["--device", "cuda"]].concat();
            let (code, out, errors) = machine.run(&arguments);
            assert_eq!(code, DEVICE, "{arguments:?}: {errors}");
            assert_eq!(out, "");
            assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
            assert!(errors.starts_with("error: device cuda:0 is not available: "));
            assert!(
                errors.ends_with("; use --device cpu or auto\n"),
                "{arguments:?}: {errors}"
            );
            machine.expects(&errors);
            assert_eq!(machine.place.names(), ["lib", "still.pgm"]);
        }
    }
}

#[test]
fn auto_is_the_cpu_then_and_says_why_where_it_is_asked() {
    for machine in Machine::all() {
        let track = ["still.pgm", "--grid=2", "-o=a.json"];
        let (code, _, errors) = machine.run(&track);
        assert_eq!((code, errors.as_str()), (0, ""), "{:?}", machine.driver);
        let quiet = machine.place.read("a.json");
        let tracks: serde_json::Value = serde_json::from_slice(&quiet).unwrap();
        assert_eq!(tracks["provenance"]["device"], "cpu");

        let (code, _, errors) = machine.run(&[&track[..], &["--device=auto", "-v"]].concat());
        assert_eq!(code, 0, "{errors}");
        let note = errors.lines().find(|line| line.starts_with("note: "));
        let note = note.unwrap_or_else(|| panic!("{:?}: {errors}", machine.driver));
        assert!(note.starts_with("note: the CPU is used: "), "{note}");
        machine.expects(note);
    }
}

#[test]
fn a_cpu_that_was_asked_for_needs_no_explanation() {
    let machine = Machine::new(Driver::Hidden).unwrap();
    let arguments = ["still.pgm", "--grid=2", "-o=a.json", "--device=cpu", "-v"];
    let (code, _, errors) = machine.run(&arguments);
    assert_eq!(code, 0, "{errors}");
    assert!(!errors.contains("the CPU is used"), "{errors}");
}

#[test]
fn doctor_says_what_is_missing() {
    for machine in Machine::all() {
        let (code, out, errors) = machine.run(&["doctor"]);
        assert_eq!((code, errors.as_str()), (0, ""));
        let line = out.lines().find(|line| line.starts_with("cuda ")).unwrap();
        if cfg!(feature = "cuda") {
            assert!(line.starts_with("cuda       in this build; "), "{line}");
            machine.expects(line);
        } else {
            assert_eq!(line, "cuda       not in this build");
        }
        assert!(out.lines().any(|line| line == "cpu        f32"), "{out}");
        assert!(!out.contains("cuda:0"), "{out}");

        let (code, out, _) = machine.run(&["doctor", "--json"]);
        assert_eq!(code, 0);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["cuda"]["built_in"], cfg!(feature = "cuda"));
        machine.expects(report["cuda"]["unavailable"].as_str().unwrap());
        let devices = report["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 1);
        assert_eq!(devices[0]["name"], "cpu");
        assert_eq!(devices[0]["precisions"], serde_json::json!(["f32"]));
    }
}

/// On a real device: what doctor says of it, and a variable that names no architecture.
#[test]
fn a_device_is_described_and_a_wrong_architecture_refused() {
    let place = Place::new();
    place.write("still.pgm", pgm(40, 30, |x, y| (x + y) % 7 < 3));
    let report: serde_json::Value = serde_json::from_str(&place.ok(&["doctor", "--json"])).unwrap();
    if let Some(reason) = report["cuda"]["unavailable"].as_str() {
        eprintln!("skipped, no device: {reason}");
        return;
    }
    let device = &report["devices"][1];
    assert_eq!(device["name"], "cuda:0");
    let precisions = device["precisions"].as_array().unwrap();
    assert!(precisions.iter().any(|p| p == "f32") && precisions.iter().any(|p| p == "f16"));
    assert!(device["hardware"]["memory_bytes"].as_u64().unwrap() > 1 << 30);
    let code = device["hardware"]["code"].as_str().unwrap();
    assert!(code.starts_with("sm_") || code.starts_with("compute_"));
    let name = device["hardware"]["name"].as_str().unwrap();
    assert!(place.ok(&["doctor"]).contains(name));

    let arguments = ["still.pgm", "--grid=2", "-o=a.json", "--device=cuda"];
    let output = place
        .command(&arguments)
        .env("TRACK_FORCE_ARCH", "banana")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(DEVICE));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: device cuda:0 is not available: TRACK_FORCE_ARCH is 'banana'; it can be 75 or 80; use --device cpu or \
         auto\n"
    );
}
