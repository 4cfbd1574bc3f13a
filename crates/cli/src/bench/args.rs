//! What can be typed after `track bench`.

use std::path::PathBuf;

use clap::Args;
use track::bench::{Bench, BenchVideo, DEFAULT_POINTS};
use track::{DeviceChoice, Precision, Size};

use crate::args::ModelArg;

const EXAMPLES: &str = "\
Examples:
  track bench
      Time the built-in clip (47 frames of 256 by 256) with 256 points in every precision that the device has.
  track bench --dtype f16 --points 1024 --json now.json --html now.html
      One precision and more points; keep the figures, and a page with pictures of them.
  track bench --against before.json
      What changed since then, per precision and layer.
  track bench --from now.json --html now.html
      Make the page, or a comparison, from figures that were kept.

How to read the table: docs/bench.md.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// A video file, a folder or quoted pattern of stills, or a GIF [default: the built-in clip].
    #[arg(value_name = "VIDEO")]
    pub(super) video: Option<PathBuf>,

    /// Made-up frames instead of a video, to leave decoding out.
    #[arg(long, conflicts_with = "video", help_heading = "What to time")]
    pub(super) synthetic: bool,

    /// Frames from the beginning [default: all].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What to time")]
    pub(super) frames: Option<usize>,

    /// The picture that is fed into the model, and the size of made-up frames [default: 256x256].
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = size, help_heading = "What to time")]
    pub(super) size: Option<Size>,

    /// Points to follow, spread over the first frame [default: 256].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What to time")]
    pub(super) points: Option<usize>,

    /// Precisions: f32, tf32, f16, bf16, separated by commas [default: every one that the device has].
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        help_heading = "What to time"
    )]
    pub(super) dtype: Vec<Precision>,

    /// Timed runs, and as many with every layer timed [default: 20 on a GPU, 3 on a CPU].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What to time")]
    pub(super) runs: Option<usize>,

    /// Runs before them that count for nothing [default: 3 on a GPU, 1 on a CPU].
    #[arg(long, value_name = "N", help_heading = "What to time")]
    pub(super) warmup: Option<usize>,

    /// Clips that a run tracks, one after the other [default: 1].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What to time")]
    pub(super) batch: Option<usize>,

    /// The model [default: that of the weights]. Without weights of it, made-up values are timed.
    #[arg(long, value_name = "MODEL", help_heading = "What to time")]
    pub(super) model: Option<ModelArg>,

    /// Weights to use instead of the built-in ones: a .safetensors file or a PyTorch checkpoint.
    #[arg(long, value_name = "FILE", help_heading = "What to time")]
    pub(super) weights: Option<PathBuf>,

    /// Where to compute: auto, cpu, cuda or cuda:1.
    #[arg(long, default_value = "auto", help_heading = "What to time")]
    pub(super) device: DeviceChoice,

    /// Take the figures from a report that --json wrote, and measure nothing.
    #[arg(
        long,
        value_name = "REPORT",
        conflicts_with_all = ["video", "synthetic", "frames", "size", "points", "dtype", "runs", "warmup", "batch", "model", "weights", "trace"],
        help_heading = "What to time"
    )]
    pub(super) from: Option<PathBuf>,

    /// Keep every figure as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,

    /// Keep one pass in each precision as a trace for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) trace: Option<PathBuf>,

    /// Draw the figures as one page that needs no other file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

    /// Say what changed since an earlier report that --json wrote.
    #[arg(long, value_name = "REPORT", help_heading = "Output")]
    pub(super) against: Option<PathBuf>,
}

impl BenchArgs {
    /// What to measure.
    pub(super) fn bench(&self) -> Bench {
        let video = match &self.video {
            Some(path) => BenchVideo::File(path.clone()),
            None if self.synthetic => BenchVideo::Synthetic,
            None => BenchVideo::Shipped,
        };
        Bench {
            video,
            frames: self.frames,
            size: self.size,
            points: self.points.unwrap_or(DEFAULT_POINTS),
            precisions: self.dtype.clone(),
            runs: self.runs,
            warmup: self.warmup,
            batch: self.batch.unwrap_or(1),
            model: self.model.map(|model| model.0),
            weights: self.weights.clone(),
            device: self.device,
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|&n: &usize| n > 0);
    n.ok_or_else(|| "write a number from 1".to_owned())
}

fn size(text: &str) -> Result<Size, String> {
    let side = |side: &str| side.parse().ok().filter(|n| (1..=16_384).contains(n));
    text.split_once('x')
        .and_then(|(width, height)| {
            Some(Size {
                width: side(width)?,
                height: side(height)?,
            })
        })
        .ok_or_else(|| "write a width and a height, for example 512x288".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_positive() {
        assert_eq!(size("512x288").map(|s| (s.width, s.height)), Ok((512, 288)));
        for bad in ["512", "0x1", "x", "1x", "-1x2", "99999x1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(count("3"), Ok(3));
        assert!(count("0").is_err() && count("many").is_err());
    }
}
