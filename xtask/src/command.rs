//! Commands that are printed before they run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    match package.parent() {
        Some(root) => root.to_path_buf(),
        None => package,
    }
}

/// One command, run in the workspace's root.
#[derive(Debug)]
pub(crate) struct Step {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(String, String)>,
}

/// `cargo NAME`, with the cargo that runs this program.
pub(crate) fn cargo(name: &str) -> Step {
    Step::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).arg(name)
}

impl Step {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.args.extend(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command as one would type it: paths below the root from there, other programs without their folder.
    pub(crate) fn line(&self) -> String {
        let root = root();
        let path = Path::new(&self.program);
        let program = match path.strip_prefix(&root) {
            Ok(below) => below.as_os_str(),
            Err(_) => path.file_name().unwrap_or_default(),
        };
        let envs = self
            .envs
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let args = self.args.iter().map(|arg| {
            let path = Path::new(arg);
            quoted(path.strip_prefix(&root).unwrap_or(path).as_os_str())
        });
        let words: Vec<_> = envs.chain([quoted(program)]).chain(args).collect();
        words.join(" ")
    }

    /// Prints the command, runs it, and fails when it does.
    pub(crate) fn run(&self) -> Result<()> {
        eprintln!("$ {}", self.line());
        let status = self
            .command()
            .status()
            .with_context(|| format!("'{}' could not be started", self.line()))?;
        if !status.success() {
            bail!("'{}' failed ({status})", self.line());
        }
        Ok(())
    }

    /// Whether the command runs and succeeds. It prints nothing: it asks, it does not change anything.
    pub(crate) fn succeeds(&self) -> bool {
        let quiet = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }

    /// What the command prints, without the last line's end; it must succeed. Like [`Self::succeeds`], it asks.
    pub(crate) fn quiet_output(&self) -> Result<String> {
        let output = self
            .command()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("'{}' could not be started", self.line()))?;
        if !output.status.success() {
            bail!("'{}' failed ({})", self.line(), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .current_dir(root());
        command
    }
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_typed() {
        let step = Step::new("/usr/bin/dnf").args(["install", "pkgconfig(libavcodec)"]);
        assert_eq!(step.line(), "dnf install 'pkgconfig(libavcodec)'");
        let step = Step::new("x").arg(root().join("assets")).env("A", "1");
        assert_eq!(step.line(), "A=1 x assets");
        let step = Step::new(root().join(".cuda/bin/python")).arg("-V");
        assert_eq!(step.line(), ".cuda/bin/python -V");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_not_a_panic() {
        let step = Step::new("no-program-has-this-name");
        assert!(!step.succeeds());
        assert!(step.run().is_err());
    }
}
