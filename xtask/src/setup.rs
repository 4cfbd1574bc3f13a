//! What building and testing need from the system, and how it gets there.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::Step;
use crate::managers::Manager;

/// Something that the system must bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// `pkg-config`, which finds FFmpeg.
    PkgConfig,
    /// FFmpeg's headers and libraries.
    FfmpegHeaders,
    /// libclang with its headers, through which the bindings to FFmpeg are made.
    Clang,
    /// `ffmpeg` and `ffprobe`, which tests compare with.
    FfmpegPrograms,
    /// A C++ compiler, which nvcc calls and tests of the device code are built with.
    Compiler,
    /// Python with the means to make an environment, which NVIDIA's compiler is fetched into.
    Python,
}

impl Need {
    /// What a build needs.
    pub(crate) const BUILD: &[Self] = &[Self::PkgConfig, Self::FfmpegHeaders, Self::Clang];
    /// What tests need besides.
    pub(crate) const TESTS: &[Self] = &[Self::FfmpegPrograms, Self::Compiler];

    fn is_met(self) -> bool {
        let answers = |program: &str, arg: &str| Step::new(program).arg(arg).succeeds();
        match self {
            Self::PkgConfig => answers(&pkg_config(), "--version"),
            Self::FfmpegHeaders => Step::new(pkg_config())
                .args(["--exists", "libavcodec", "libavformat"])
                .args(["libavutil", "libswscale"])
                .succeeds(),
            Self::Clang => answers("clang", "--version") && has_libclang(),
            Self::FfmpegPrograms => answers("ffmpeg", "-version") && answers("ffprobe", "-version"),
            Self::Compiler => answers("g++", "--version"),
            // Debian has Python without the module that puts pip into an environment.
            Self::Python => Step::new("python3")
                .args(["-c", "import ensurepip, venv"])
                .succeeds(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PkgConfig => "pkg-config",
            Self::FfmpegHeaders => {
                "FFmpeg's headers (libavcodec, libavformat, libavutil, libswscale)"
            }
            Self::Clang => "clang and libclang",
            Self::FfmpegPrograms => "the programs ffmpeg and ffprobe",
            Self::Compiler => "a C++ compiler (g++)",
            Self::Python => "Python 3 with venv",
        }
    }
}

/// The pkg-config that the build scripts will ask.
fn pkg_config() -> String {
    std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned())
}

/// Whether libclang lies where the bindings' generator looks for it.
fn has_libclang() -> bool {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(path) = std::env::var_os("LIBCLANG_PATH") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return true;
        }
        folders.push(path);
    }
    if let Ok(folder) = Step::new("llvm-config").arg("--libdir").quiet_output() {
        folders.push(folder.into());
    }
    folders.extend(children("/usr/lib", "llvm").map(|llvm| llvm.join("lib")));
    // Debian's folders by architecture: /usr/lib/x86_64-linux-gnu and so on.
    folders
        .extend(children("/usr/lib", "").filter(|p| p.to_string_lossy().ends_with("-linux-gnu")));
    folders.extend(
        [
            "/usr/lib",
            "/usr/lib64",
            "/usr/local/lib",
            "/Library/Developer/CommandLineTools/usr/lib",
            "/opt/homebrew/opt/llvm/lib",
            "/usr/local/opt/llvm/lib",
        ]
        .map(PathBuf::from),
    );
    let is_libclang = |name: &str| {
        let rest = name.strip_prefix("libclang");
        rest.is_some_and(|rest| {
            let named = rest.starts_with('.') || rest.starts_with("-1") || rest.starts_with("-2");
            named && (rest.contains(".so") || rest.contains(".dylib"))
        })
    };
    folders.iter().any(|folder| {
        children(folder, "libclang").any(|file| {
            let name = file.file_name().unwrap_or_default();
            is_libclang(&name.to_string_lossy())
        })
    })
}

/// Entries of a folder whose names begin with `start`; none where it cannot be read.
fn children(folder: impl AsRef<Path>, start: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(move |e| e.file_name().to_string_lossy().starts_with(start))
        .map(|e| e.path())
}

/// Sees to it that `needs` are there: installs what is missing as root, asks where `sudo` can be used, and
/// otherwise says what to type.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|need| need.name()).collect();
    eprintln!("This machine lacks {}.", names.join("; "));
    let Some(manager) = Manager::detect() else {
        bail!(
            "no package manager is known here (apt, dnf, pacman, brew); install {} and run this again",
            names.join("; ")
        );
    };
    let root = is_root();
    let sudo = manager.needs_root() && !root;
    let steps = manager.steps(&missing, sudo);
    if sudo && !agreed(&steps)? {
        let lines: Vec<_> = steps.iter().map(|s| format!("    {}", s.line())).collect();
        bail!(
            "packages are missing; type\n{}\nand run this again",
            lines.join("\n")
        );
    }
    for step in steps {
        step.run()?;
    }
    match self::missing(&missing)[..] {
        [] => Ok(()),
        [need, ..] => bail!(
            "{} should be installed now, but cannot be found; see the messages above",
            need.name()
        ),
    }
}

fn missing(needs: &[Need]) -> Vec<Need> {
    let unmet = needs.iter().copied().filter(|need| !need.is_met());
    unmet.collect()
}

fn is_root() -> bool {
    let id = Step::new("id").arg("-u").quiet_output();
    id.is_ok_and(|id| id == "0")
}

/// Asks on a terminal; without one, or without sudo, nobody agrees.
fn agreed(steps: &[Step]) -> Result<bool> {
    let sudo = Step::new("sudo").arg("--version").succeeds();
    if !sudo || !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    eprintln!("These commands install it:");
    for step in steps {
        eprintln!("    {}", step.line());
    }
    eprint!("Run them now? [y/N] ");
    std::io::stderr()
        .flush()
        .context("no answer could be asked for")?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("the answer could not be read")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
