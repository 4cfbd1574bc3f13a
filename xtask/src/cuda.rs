//! NVIDIA's compiler, and what is built with it.
//!
//! Device code needs `nvcc` to build, but no GPU and no driver. The compiler comes from PyPI as five wheels of 105 MB,
//! into a folder that git ignores, so that no system needs NVIDIA's packages. Which compiler is used is decided in
//! the same order as by the build script of `track-kernels`, which is what runs it.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::command::{Step, cargo, root};
use crate::setup::{self, Need};

/// Release of the oldest compiler that is good enough: earlier ones do not compress device code by size.
const OLDEST: Release = (12, 8);

/// What is fetched: the compiler, its headers, its code generator, the runtime's and the C++ library's headers.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// Where it is fetched to, from the workspace's root: a Python environment.
const FOLDER: &str = ".cuda";

/// Where Python is in it.
const PYTHON: &str = ".cuda/bin/python";

/// What to do where nothing can be fetched.
const INSTEAD: &str = "set CUDA_HOME to a CUDA toolkit of 12.8 or newer instead";

/// Major and minor number.
type Release = (u32, u32);

/// A compiler that the build script would take.
#[derive(Debug, PartialEq, Eq)]
struct Compiler {
    path: PathBuf,
    from: Origin,
    /// `None` where it does not answer.
    release: Option<Release>,
}

/// Who decided for a compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// An environment variable.
    Named(&'static str),
    /// This program.
    Fetched,
    /// It is installed.
    System,
}

impl Compiler {
    fn at(path: PathBuf, from: Origin) -> Self {
        let said = Step::new(&path).arg("--version").quiet_output();
        let release = said.ok().and_then(|text| release(&text));
        Self {
            path,
            from,
            release,
        }
    }

    fn is_good(&self) -> bool {
        self.release.is_some_and(|release| release >= OLDEST)
    }
}

/// `cargo xtask cuda`: sees to it that there is a compiler; with `build`, builds the program for CUDA in the release
/// profile.
pub(crate) fn run(build: bool) -> Result<()> {
    let compiler = ensure()?;
    eprintln!("NVIDIA's compiler is {}", compiler.path.display());
    if !build {
        return Ok(());
    }
    setup::ensure(Need::BUILD)?;
    cargo("build")
        .args(["--release", "-p", "track-cli", "--features", "cuda"])
        .run()?;
    println!();
    println!("The program is target/release/track, or in the folder that CARGO_TARGET_DIR names.");
    println!("It needs NVIDIA's driver to use a GPU, and says what it finds with: track doctor");
    Ok(())
}

/// What switches everything optional on that can be built here, for cargo: the emulator of the device code, and CUDA
/// where there is a compiler already. One set for tests and lints, so that nothing is built twice.
pub(crate) fn features() -> Vec<String> {
    let mut names = Vec::new();
    // Its fibers and the list of its kernels are made for Linux.
    if cfg!(target_os = "linux") {
        names.push("track-tests/emulate");
    }
    if chosen().is_some_and(|compiler| compiler.is_good()) {
        names.push("track-cli/cuda");
    }
    if names.is_empty() {
        return Vec::new();
    }
    vec!["--features".to_owned(), names.join(",")]
}

/// The compiler, fetched if there is none that is good enough.
fn ensure() -> Result<Compiler> {
    setup::ensure(&[Need::Compiler])?;
    match chosen() {
        // An interrupted fetch is completed by the next; a complete one takes a second and no network.
        Some(compiler) if compiler.is_good() && compiler.from != Origin::Fetched => {
            return Ok(compiler);
        }
        Some(compiler) => {
            if let Origin::Named(variable) = compiler.from {
                bail!("{}", refusal(variable, &compiler));
            }
        }
        None => {}
    }
    fetch()?;
    match chosen() {
        Some(compiler) if compiler.is_good() => Ok(compiler),
        _ => bail!(
            "NVIDIA's compiler was fetched, but {FOLDER} holds none that answers; remove that folder and try again, \
             or {INSTEAD}"
        ),
    }
}

fn refusal(variable: &str, compiler: &Compiler) -> String {
    let path = compiler.path.display();
    match compiler.release {
        Some((major, minor)) => format!(
            "{variable} leads to {path} of CUDA {major}.{minor}, and {}.{} or newer is needed; unset it to have a \
             newer one fetched",
            OLDEST.0, OLDEST.1
        ),
        None => format!(
            "{variable} leads to {path}, which does not answer as a compiler; correct it, or unset it to have one \
             fetched"
        ),
    }
}

fn fetch() -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!(
            "NVIDIA's compiler is fetched on Linux only, and this is {}; {INSTEAD}",
            std::env::consts::OS
        );
    }
    // A fetched environment is enough; the system's Python is asked for only where there is none.
    if !Step::new(root().join(PYTHON))
        .args(["-m", "pip", "--version"])
        .succeeds()
    {
        setup::ensure(&[Need::Python])?;
        Step::new("python3")
            .args(["-m", "venv", "--clear", FOLDER])
            .run()?;
    }
    Step::new(root().join(PYTHON))
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", "--only-binary=:all:"])
        .args(WHEELS)
        .run()
        // What pip said is enough; its command line is long.
        .map_err(|_| {
            anyhow!("NVIDIA's compiler could not be fetched from PyPI, see above; {INSTEAD}")
        })
}

/// The compiler that the build script would take: what `NVCC` names, the toolkit of `CUDA_HOME` or `CUDA_PATH`, the
/// fetched one, or the system's.
fn chosen() -> Option<Compiler> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable("NVCC") {
        return Some(Compiler::at(named.into(), Origin::Named("NVCC")));
    }
    let named = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(|name| Some((PathBuf::from(variable(name)?), Origin::Named(name))));
    let fetched = toolkits(&root().join(FOLDER))
        .into_iter()
        .map(|home| (home, Origin::Fetched));
    let system = [(PathBuf::from("/usr/local/cuda"), Origin::System)];
    let mut homes = named.chain(fetched).chain(system);
    let installed = homes.find_map(|(home, from)| {
        let nvcc = home.join("bin/nvcc");
        nvcc.is_file().then(|| Compiler::at(nvcc, from))
    });
    let on_path = || Compiler::at("nvcc".into(), Origin::System);
    installed.or_else(|| Some(on_path()).filter(|compiler| compiler.release.is_some()))
}

/// Toolkits in a Python environment; its libraries lie in a folder of Python's version.
fn toolkits(environment: &Path) -> Vec<PathBuf> {
    let pythons = std::fs::read_dir(environment.join("lib"));
    let pythons = pythons.into_iter().flatten().flatten();
    let toolkit = |folder: PathBuf| folder.join("site-packages/nvidia/cu13");
    pythons.map(|python| toolkit(python.path())).collect()
}

/// The release in what `nvcc --version` says.
fn release(text: &str) -> Option<Release> {
    let (_, rest) = text.split_once("release ")?;
    let (number, _) = rest.split_once(',')?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "nvcc: NVIDIA (R) Cuda compiler driver\n\
                        Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler\n";

    #[test]
    fn releases_are_read_and_compared() {
        assert_eq!(release(SAID), Some((13, 0)));
        assert_eq!(
            release("Cuda compilation tools, release 12.10, V12.10.1"),
            Some((12, 10))
        );
        assert_eq!(release("nvcc fatal"), None);
        let good = |release| {
            let path = "nvcc".into();
            let from = Origin::System;
            Compiler {
                path,
                from,
                release,
            }
            .is_good()
        };
        assert!(good(Some((13, 0))) && good(Some((12, 8))) && good(Some((12, 10))));
        assert!(!good(Some((12, 6))) && !good(Some((11, 8))) && !good(None));
    }

    #[test]
    fn what_a_variable_names_is_refused_with_its_name() {
        let mut compiler = Compiler::at("no-program-has-this-name".into(), Origin::Named("NVCC"));
        assert_eq!(compiler.release, None);
        let said = refusal("NVCC", &compiler);
        assert!(said.starts_with("NVCC leads to no-program-has-this-name, which does not answer"));
        compiler.release = Some((11, 8));
        assert!(refusal("CUDA_HOME", &compiler).contains("of CUDA 11.8, and 12.8 or newer"));
    }

    #[test]
    fn the_wheels_are_pinned() {
        for wheel in WHEELS {
            let version = wheel.split_once("==").map(|(_, version)| version);
            assert!(version.is_some_and(|v| v.starts_with("13.0.")), "{wheel}");
        }
    }
}
