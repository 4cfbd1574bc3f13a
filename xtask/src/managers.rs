//! Package managers: what their packages are called and how they are asked.

use crate::command::Step;
use crate::setup::Need;

/// A package manager that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    Apt,
    Dnf,
    Pacman,
    Brew,
}

impl Manager {
    const ALL: [Self; 4] = [Self::Apt, Self::Dnf, Self::Pacman, Self::Brew];

    /// The first one on this machine. Homebrew last: on Linux it stands beside the system's own.
    pub(crate) fn detect() -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|m| Step::new(m.program()).arg("--version").succeeds())
    }

    fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Pacman => "pacman",
            Self::Brew => "brew",
        }
    }

    /// Homebrew installs into a user's own folder and refuses root.
    pub(crate) fn needs_root(self) -> bool {
        self != Self::Brew
    }

    /// The packages that bring `need`.
    pub(crate) fn packages(self, need: Need) -> &'static [&'static str] {
        match (self, need) {
            (Self::Apt, Need::PkgConfig) => &["pkg-config"],
            (Self::Apt, Need::FfmpegHeaders) => &[
                "libavcodec-dev",
                "libavformat-dev",
                "libavutil-dev",
                "libswscale-dev",
            ],
            (Self::Apt, Need::Clang) => &["clang", "libclang-dev"],
            (Self::Apt, Need::FfmpegPrograms) => &["ffmpeg"],
            (Self::Apt, Need::Compiler) => &["g++"],
            (Self::Apt, Need::Python) => &["python3-venv"],
            // Capabilities rather than names: Fedora and RPM Fusion call their packages differently.
            (Self::Dnf, Need::PkgConfig) => &["/usr/bin/pkg-config"],
            (Self::Dnf, Need::FfmpegHeaders) => &[
                "pkgconfig(libavcodec)",
                "pkgconfig(libavformat)",
                "pkgconfig(libavutil)",
                "pkgconfig(libswscale)",
            ],
            (Self::Dnf, Need::Clang) => &["clang", "clang-devel"],
            (Self::Dnf, Need::FfmpegPrograms) => &["/usr/bin/ffmpeg", "/usr/bin/ffprobe"],
            (Self::Dnf, Need::Compiler) => &["/usr/bin/g++"],
            (Self::Dnf, Need::Python) => &["/usr/bin/python3"],
            (Self::Pacman, Need::PkgConfig) => &["pkgconf"],
            (Self::Pacman, Need::Clang) => &["clang"],
            (Self::Brew, Need::PkgConfig) => &["pkgconf"],
            (Self::Brew, Need::Clang) => &["llvm"],
            (Self::Pacman | Self::Brew, Need::Compiler) => &["gcc"],
            (Self::Pacman | Self::Brew, Need::Python) => &["python"],
            (Self::Pacman | Self::Brew, Need::FfmpegHeaders | Need::FfmpegPrograms) => &["ffmpeg"],
        }
    }

    /// What installs `needs`, through `sudo` where asked for.
    pub(crate) fn steps(self, needs: &[Need], sudo: bool) -> Vec<Step> {
        let mut packages: Vec<&str> = Vec::new();
        for package in needs.iter().flat_map(|need| self.packages(*need)) {
            if !packages.contains(package) {
                packages.push(package);
            }
        }
        let step = || match (sudo, self) {
            (true, _) => Step::new("sudo").arg(self.program()),
            // A package may ask questions, and in CI nobody answers.
            (false, Self::Apt) => {
                Step::new(self.program()).env("DEBIAN_FRONTEND", "noninteractive")
            }
            (false, _) => Step::new(self.program()),
        };
        match self {
            Self::Apt => vec![
                step().arg("update"),
                step()
                    .args(["install", "--yes", "--no-install-recommends"])
                    .args(packages),
            ],
            Self::Dnf => vec![step().args(["install", "--assumeyes"]).args(packages)],
            Self::Pacman => vec![
                step()
                    .args(["-S", "--needed", "--noconfirm"])
                    .args(packages),
            ],
            Self::Brew => vec![step().arg("install").args(packages)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(manager: Manager, needs: &[Need], sudo: bool) -> Vec<String> {
        let steps = manager.steps(needs, sudo);
        steps.iter().map(Step::line).collect()
    }

    #[test]
    fn only_what_is_missing_is_installed() {
        assert_eq!(
            lines(Manager::Apt, &[Need::PkgConfig], true),
            [
                "sudo apt-get update",
                "sudo apt-get install --yes --no-install-recommends pkg-config"
            ]
        );
    }

    #[test]
    fn a_package_that_brings_two_things_is_named_once() {
        let needs = [Need::FfmpegHeaders, Need::FfmpegPrograms];
        assert_eq!(lines(Manager::Brew, &needs, false), ["brew install ffmpeg"]);
    }
}
