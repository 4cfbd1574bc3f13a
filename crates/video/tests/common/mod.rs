//! Test media, made on the fly with the `ffmpeg` program.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::Command;

use track_video::{Error, Frame, OpenOptions, Reader, open};

/// A folder that goes away with the test.
pub struct Media(tempfile::TempDir);

impl Media {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `ffmpeg ARGS NAME` in the folder; arguments are split at blanks.
    pub fn make(&self, name: &str, args: &str) -> PathBuf {
        let out = Command::new("ffmpeg")
            .args(["-hide_banner", "-loglevel", "error", "-y", "-nostdin"])
            .args(args.split_whitespace())
            .arg(name)
            .current_dir(self.0.path())
            .output()
            .expect("the tests need the ffmpeg program");
        assert!(
            out.status.success(),
            "ffmpeg {args}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        self.path(name)
    }

    /// Names left in the folder.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// One value of each frame by `ffprobe`, such as `pts_time`.
pub fn probe_frames(path: &Path, field: &str) -> Vec<String> {
    probe(path, &format!("frame={field}"))
}

pub fn probe(path: &Path, entries: &str) -> Vec<String> {
    let out = Command::new("ffprobe")
        .args([
            "-v",
            "error",
            "-select_streams",
            "v:0",
            "-of",
            "csv=p=0",
            "-show_entries",
            entries,
        ])
        .arg(path)
        .output()
        .expect("the tests need the ffprobe program");
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|l| l.trim().trim_end_matches(',').to_owned())
        .filter(|l| !l.is_empty())
        .collect()
}

pub fn reader(path: &Path) -> Reader {
    open(path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

pub fn frames(path: &Path) -> Vec<Frame> {
    reader(path).map(|f| f.unwrap()).collect()
}

pub fn ranged(path: &Path, range: &str) -> Result<Vec<Frame>, Error> {
    let options = OpenOptions {
        range: range.parse()?,
        ..Default::default()
    };
    open(path, &options)?.collect()
}

/// The colour of the pixel at (x, y).
pub fn pixel(frame: &Frame, x: u32, y: u32) -> [u8; 3] {
    let at = ((y * frame.width + x) * 3) as usize;
    [frame.data[at], frame.data[at + 1], frame.data[at + 2]]
}

pub fn near(a: [u8; 3], b: [u8; 3], by: u8) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= by)
}

pub const BFRAMES: &str = "-c:v libx264 -bf 3 -g 12 -pix_fmt yuv420p";
