//! The clip in `assets/`, tracked: what a newcomer types first.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::{Step, cargo, root};
use crate::setup::{self, Need};

/// What is tracked, from the workspace's root.
const CLIP: &str = "assets/pedestrians_47f_256x256.mp4";

/// Points on the people who walk: a grid alone mostly falls on the ground.
const POINTS: &str = "assets/pedestrians_points.csv";

/// Sets up, builds the program in the release profile, tracks the clip and says where the results are.
pub(crate) fn run() -> Result<()> {
    setup::ensure(Need::BUILD)?;
    cargo("build")
        .args(["--release", "-p", "track-cli"])
        .run()?;

    let target = target()?;
    let folder = target.join("demo");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    let output = |name: &str| folder.join(name);
    let sheet = output("pedestrians.png");
    let program = target
        .join("release")
        .join(format!("track{}", std::env::consts::EXE_SUFFIX));
    Step::new(program)
        .arg(root().join(CLIP))
        .args(["--grid", "8", "--points-file"])
        .arg(root().join(POINTS))
        .arg("-o")
        .arg(output("pedestrians.json"))
        .arg("-o")
        .arg(output("pedestrians.npz"))
        .arg("--overlay")
        .arg(output("pedestrians.mp4"))
        .arg("--overlay")
        .arg(&sheet)
        .run()?;
    if !sheet.is_file() {
        bail!(
            "the program ended well, but {} is not there",
            sheet.display()
        );
    }
    println!();
    println!("The picture is  {}", sheet.display());
    println!("The video is    {}", output("pedestrians.mp4").display());
    println!("A disc is a visible point, a ring a hidden one. Now try it on a video of your own:");
    println!("    cargo run --release -p track-cli -- VIDEO");
    Ok(())
}

/// The folder of build results: this program lies in `TARGET/debug` or `TARGET/release`, wherever that is.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    match program.ancestors().nth(2) {
        Some(target) => Ok(target.to_path_buf()),
        None => bail!("{} lies in no build folder", program.display()),
    }
}
