//! The program as a user runs it, in a folder of its own.

// Each test binary uses its own part of this.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;

/// 47 frames of 256×256 at 10 frames per second.
pub const CLIP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../assets/pedestrians_47f_256x256.mp4"
);

/// The built-in weights as a file.
pub const WEIGHTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../models/locotrack_small.safetensors"
);

/// A folder that the program runs in.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names of everything in the folder, hidden files too.
    pub fn names(&self) -> Vec<String> {
        names(self.0.path())
    }

    pub fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_track"));
        command.current_dir(self.0.path()).args(arguments);
        command.env_remove("RUST_BACKTRACE");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs and expects success; what was printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs and expects this exit code, one sentence on the error stream, nothing on the other, no panic and
    /// no file that was not there before. The sentence.
    pub fn refused(&self, arguments: &[&str], code: i32) -> String {
        let before = self.names();
        let output = self.run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(self.names(), before, "{arguments:?} left files");
        let (notes, sentences): (Vec<_>, Vec<_>) =
            errors.lines().partition(|l| l.starts_with("warning: "));
        assert!(notes.len() <= 3, "{arguments:?}: {errors}");
        assert_eq!(sentences.len(), 1, "{arguments:?}: {errors}");
        assert!(
            sentences[0].starts_with("error: "),
            "{arguments:?}: {errors}"
        );
        sentences[0].to_string()
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A second of silence.
pub fn wav() -> Vec<u8> {
    let samples = 8000_u32;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + samples * 2).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16_u32.to_le_bytes());
    bytes.extend([1, 0, 1, 0]);
    bytes.extend(samples.to_le_bytes());
    bytes.extend((samples * 2).to_le_bytes());
    bytes.extend([2, 0, 16, 0]);
    bytes.extend(b"data");
    bytes.extend((samples * 2).to_le_bytes());
    bytes.resize(bytes.len() + samples as usize * 2, 0);
    bytes
}

/// A grey picture as binary PGM, set where `set` says.
pub fn pgm(width: usize, height: usize, set: impl Fn(usize, usize) -> bool) -> Vec<u8> {
    let mut bytes = format!("P5\n{width} {height}\n255\n").into_bytes();
    bytes.extend((0..width * height).map(|k| if set(k % width, k / width) { 255 } else { 0 }));
    bytes
}

/// The built-in weights with another bias of the first output, given in the bits of half precision: every refinement
/// moves x by about that much more.
pub fn weights_with_bias(bias: u16) -> Vec<u8> {
    let mut bytes = std::fs::read(WEIGHTS).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let tensor = &header["torch_pips_mixer.output_proj.bias"];
    assert_eq!(tensor["dtype"], "F16");
    let at = 8 + length + tensor["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at..at + 2].copy_from_slice(&bias.to_le_bytes());
    bytes
}
