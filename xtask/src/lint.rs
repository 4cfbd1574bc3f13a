//! What can be checked without running the project: formatting, clippy, dependencies, our own rules.

use anyhow::{Result, bail};

use crate::command::{Step, cargo, root};
use crate::cuda;
use crate::rules;
use crate::setup::{self, Need};

/// Runs every check, the quick ones first.
pub(crate) fn run() -> Result<()> {
    own_rules()?;
    component("fmt", "rustfmt")?;
    cargo("fmt").args(["--all", "--check"]).run()?;

    setup::ensure(Need::BUILD)?;
    component("clippy", "clippy")?;
    // As people build it, and with everything that is optional: device code's host side is only there then.
    clippy(&[])?;
    clippy(&cuda::features())?;

    if !cargo("deny").arg("--version").succeeds() {
        cargo("install").args(["--locked", "cargo-deny"]).run()?;
    }
    // No advisories: their database would have to be fetched, and a check would change from day to day.
    cargo("deny")
        .args(["check", "--hide-inclusion-graph"])
        .args(["licenses", "bans", "sources"])
        .run()
}

fn clippy(features: &[String]) -> Result<()> {
    cargo("clippy")
        .args(["--workspace", "--all-targets", "--locked"])
        .args(features)
        .args(["--", "-D", "warnings"])
        .run()
}

/// A part of the toolchain that a minimal installation lacks.
fn component(command: &str, name: &str) -> Result<()> {
    if cargo(command).arg("--version").succeeds() {
        Ok(())
    } else {
        Step::new("rustup").args(["component", "add", name]).run()
    }
}

fn own_rules() -> Result<()> {
    eprintln!("checking the project's own rules");
    let broken = rules::check(&root())?;
    for line in &broken {
        eprintln!("{line}");
    }
    match broken.len() {
        0 => Ok(()),
        1 => bail!("a rule of this project is broken, see above"),
        n => bail!("rules of this project are broken in {n} places, see above"),
    }
}
