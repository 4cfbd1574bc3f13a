//! Everything that a person or CI types: `cargo xtask demo`, `cuda`, `test`, `lint`, `golden`, `ci`.
//!
//! It builds without FFmpeg, because it is what installs FFmpeg's headers. Every command that it runs is
//! printed first, so that any step can be repeated by hand.

mod command;
mod cuda;
mod demo;
mod lint;
mod managers;
mod rules;
mod setup;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use command::cargo;
use setup::Need;

/// What a person or CI types. Missing system packages are installed, or named with the command to type.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Set up, build, track the clip in assets/ and say where the picture is.
    Demo,
    /// Fetch NVIDIA's compiler where there is none, and build the program for CUDA. Needs no GPU and no driver.
    Cuda {
        /// Only see to the compiler.
        #[arg(long)]
        check: bool,
    },
    /// Set up, then run every test: device code too, on an emulator.
    Test {
        /// Passed on to cargo test: `cargo xtask test -- -p track-video`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Check formatting, clippy, the dependencies' licences and sources, and this project's own rules.
    Lint,
    /// Compare the default weights' tracks with the recorded ones, and print how far each number moved.
    Golden {
        /// Record the new numbers.
        #[arg(long)]
        bless: bool,
    },
    /// What CI runs: the compiler for CUDA where it can be had, lint, test.
    Ci,
}

fn main() -> ExitCode {
    match run(&Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Demo => demo::run(),
        Task::Cuda { check } => cuda::run(!check),
        Task::Test { args } => test(args),
        Task::Lint => lint::run(),
        Task::Golden { bless } => golden(*bless),
        Task::Ci => {
            if let Err(error) = cuda::run(false) {
                eprintln!("xtask: going on without CUDA: {error:#}");
            }
            lint::run()?;
            test(&[])
        }
    }
}

/// Every test, in the development profile: it optimises (`opt-level` 2, 3 for dependencies), keeps overflow
/// checks and debug assertions, and links many test programs without the release profile's LTO. Nothing that
/// CI runs needs a second, release build. A chosen package is tested as it is built by default.
fn test(args: &[String]) -> Result<()> {
    setup::ensure(&[Need::BUILD, Need::TESTS].concat())?;
    let chosen = args
        .iter()
        .any(|a| a.starts_with("-p") || a.starts_with("--package"));
    let mut step = cargo("test");
    if !chosen {
        step = step.arg("--workspace").args(cuda::features());
    }
    step.args(args).run()
}

/// The program's own command, on the project's own goldens.
fn golden(bless: bool) -> Result<()> {
    setup::ensure(Need::BUILD)?;
    let step = cargo("run").args(["-p", "track-cli", "--", "golden", "check", "tests/golden"]);
    let step = step.args(["--device", "cpu"]);
    if bless {
        step.arg("--update").run()
    } else {
        step.run()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_behind_two_dashes_goes_to_cargo() {
        let cli = Cli::try_parse_from(["x", "test", "--", "-p", "track", "--", "--nocapture"]);
        match cli.map(|cli| cli.task) {
            Ok(Task::Test { args }) => assert_eq!(args, ["-p", "track", "--", "--nocapture"]),
            other => panic!("{other:?}"),
        }
    }
}
