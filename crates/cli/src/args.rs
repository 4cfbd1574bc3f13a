//! What can be typed. What it means is decided in `job`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use track::{DeviceChoice, ModelKind, Position, Precision, QueryPoint, Resolution, Size};

use crate::bench::BenchArgs;
use crate::explain::ExplainArgs;
use crate::golden::GoldenArgs;

const EXAMPLES: &str = "\
Examples:
  track street.mp4
      Follow a 10 by 10 grid; write street.tracks.json and street.tracks.mp4 here.
  track street.mp4 --points 0,320,240 --points 12,100.5,80 -o points.csv
      Follow two points, one from frame 0 and one from frame 12; write a table.
  track street.mp4 --mask car.png --grid 20 --query-frame 30 -o car.npz --overlay car.gif
      Follow points inside a mask of frame 30; write NumPy arrays and a GIF.
  track street.mp4 --start 2.5s --end 4s --overlay sheet.png --json
      Track a part of the video, draw a contact sheet, and summarise for a script.

Positions are in pixels of the displayed picture, x to the right and y down, with (0, 0) in the \
corner of the corner pixel: the middle of that pixel is (0.5, 0.5). Frames are counted from 0 at --start.

Exit codes:
  0  done                               4  weights that cannot be read or do not fit
  1  a fault of the program             5  a device or precision that is missing, too little memory,
  2  bad usage, or an output path          or values that are not finite (--check-finite)
     that cannot be used                6  golden outputs moved further than allowed
  3  input that cannot be read or       130  interrupted
     is not a video";

/// Follow points through a video: where each is on every frame, and when it is hidden.
///
/// Give a video and, if you like, points; without any, a grid is laid over the first frame. Every point is
/// followed through all frames, forwards and backwards from its own.
#[derive(Debug, Parser)]
#[command(
    name = "track",
    version,
    after_long_help = EXAMPLES,
    after_help = "See 'track --help' for examples, exit codes and what positions mean.",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    subcommand_value_name = "COMMAND",
    subcommand_help_heading = "Commands",
    override_usage = "track [OPTIONS] <VIDEO>\n       track <COMMAND>"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) track: TrackArgs,

    /// Say nothing but errors.
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Messages"
    )]
    pub(crate) quiet: bool,

    /// Say more: notes, and a table of what each layer of the model cost. Twice: more still.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Messages")]
    pub(crate) verbose: u8,
}

/// What else the program does. A video of such a name is given as ./NAME.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what this program and this machine offer: versions, processor, memory, devices, weights.
    Doctor {
        /// For machines.
        #[arg(long)]
        json: bool,
    },
    /// List the models, and the weights that come with the program.
    Models {
        /// For machines.
        #[arg(long)]
        json: bool,
    },
    /// Time a clip in every precision: whole passes, and each layer beside what the device could do.
    Bench(Box<BenchArgs>),
    /// Say what a benchmark's report means on other GPUs: floors, predictions, and what to change first.
    Explain(ExplainArgs),
    /// Record what clips give, and check later what moved: on another GPU, driver, precision or version.
    Golden(GoldenArgs),
    /// Write a completion script for a shell to standard output.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TrackArgs {
    /// A video file, a folder or quoted pattern of stills ('shots/*.png'), a GIF or a still.
    #[arg(value_name = "VIDEO", required = true)]
    pub(crate) video: Option<PathBuf>,

    /// Lay an N by N grid over the picture, or over the mask [default: 10 when no points are given].
    #[arg(long, value_name = "N", value_parser = grid, help_heading = "Points")]
    pub(crate) grid: Option<usize>,

    /// Follow the point at x, y (pixels) on frame t. May be given again.
    #[arg(
        long = "points",
        value_name = "T,X,Y",
        allow_hyphen_values = true,
        help_heading = "Points"
    )]
    pub(crate) points: Vec<PointArg>,

    /// Read points from a .csv (its header names t, x, y, perhaps label) or a .json (an array of objects with
    /// these names).
    #[arg(long, value_name = "FILE", help_heading = "Points")]
    pub(crate) points_file: Option<PathBuf>,

    /// Follow points inside the white pixels of a still of the picture's size.
    #[arg(long, value_name = "FILE", help_heading = "Points")]
    pub(crate) mask: Option<PathBuf>,

    /// The frame on which the grid or mask lies [default: 0].
    #[arg(long, value_name = "T", help_heading = "Points")]
    pub(crate) query_frame: Option<f32>,

    /// Start at this frame (120) or time (2.5s, 1:02.5). It becomes frame 0.
    #[arg(
        long,
        value_name = "POSITION",
        allow_hyphen_values = true,
        help_heading = "Video"
    )]
    pub(crate) start: Option<Position>,

    /// Stop before this frame or time.
    #[arg(
        long,
        value_name = "POSITION",
        allow_hyphen_values = true,
        help_heading = "Video"
    )]
    pub(crate) end: Option<Position>,

    /// Write tracks to a .json, .csv or .npz. May be given again. A file of that name is replaced.
    #[arg(short, long = "output", value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Vec<PathBuf>,

    /// Draw the tracks onto the video: .mp4 (.mov, .mkv), .gif, or a contact sheet as .png. May be given again.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) overlay: Vec<PathBuf>,

    /// Print the summary as JSON, for machines.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// The model that the weights must belong to [default: whatever they are].
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<ModelArg>,

    /// Weights to use instead of the built-in ones: a .safetensors file or a PyTorch checkpoint.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub(crate) weights: Option<PathBuf>,

    /// The arithmetic: f32, tf32, f16 or bf16, as far as the device has it.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Model"
    )]
    pub(crate) dtype: Precision,

    /// Where to compute: auto, cpu, cuda or cuda:1.
    #[arg(long, default_value = "auto", help_heading = "Model")]
    pub(crate) device: DeviceChoice,

    /// The picture that the model works on: its own size (model), the video's (clip), or WIDTHxHEIGHT.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "model",
        help_heading = "Model"
    )]
    pub(crate) resolution: ResolutionArg,

    /// Threads that compute [default: one per core].
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Model")]
    pub(crate) threads: Option<usize>,

    /// Look at every layer's result, and end with the name of the first that is not finite. Slow.
    #[arg(long, help_heading = "Model")]
    pub(crate) check_finite: bool,
}

/// A point as it is typed: t,x,y.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PointArg(pub(crate) QueryPoint);

impl FromStr for PointArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "write three numbers as t,x,y, for example 0,320,240.5";
        let numbers: Vec<f32> = text
            .split(',')
            .map(|field| field.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| expected.to_owned())?;
        match numbers[..] {
            [t, x, y] if numbers.iter().all(|n| n.is_finite()) => {
                Ok(Self(QueryPoint::new(t, x, y)))
            }
            _ => Err(expected.to_owned()),
        }
    }
}

/// A resolution as it is typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResolutionArg(pub(crate) Resolution);

impl FromStr for ResolutionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |side: &str| side.parse().ok().filter(|&n: &usize| n > 0);
        let resolution = match text {
            "model" => Resolution::Model,
            "clip" => Resolution::Clip,
            other => {
                let sides = other.split_once('x');
                let size = sides.and_then(|(w, h)| Some((side(w)?, side(h)?)));
                let (width, height) =
                    size.ok_or("write model, clip, or a size as 512x288".to_owned())?;
                Resolution::Custom(Size { width, height })
            }
        };
        Ok(Self(resolution))
    }
}

/// A model's name, as `track models` lists it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ModelArg(pub(crate) ModelKind);

impl ValueEnum for ModelArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ModelArg; ModelKind::ALL.len()] = {
            let mut all = [ModelArg(ModelKind::ALL[0]); ModelKind::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = ModelArg(ModelKind::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.name()))
    }
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    // Far above any machine; beyond it the system refuses threads one by one.
    number(text, 1024)
}

pub(crate) fn grid(text: &str) -> Result<usize, String> {
    number(text, 1000)
}

fn number(text: &str, most: usize) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=most).contains(n));
    n.ok_or_else(|| format!("write a number from 1 to {most}"))
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
    fn points_are_three_finite_numbers() {
        let point = |text: &str| text.parse::<PointArg>().map(|p| p.0);
        assert_eq!(point("1,2.5, 3"), Ok(QueryPoint::new(1.0, 2.5, 3.0)));
        for bad in ["", "1,2", "1,2,3,4", "1,b,3", "1,nan,3", "1;2;3", "1,,3"] {
            assert!(point(bad).unwrap_err().contains("t,x,y"), "{bad}");
        }
    }

    #[test]
    fn resolutions_are_words_or_sizes() {
        let size = |text: &str| text.parse::<ResolutionArg>().map(|r| r.0);
        assert_eq!(size("clip"), Ok(Resolution::Clip));
        let (width, height) = (512, 288);
        let custom = Resolution::Custom(Size { width, height });
        assert_eq!(size("512x288"), Ok(custom));
        for bad in ["512", "0x288", "512x", "512*288", "Model", "-1x2"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn subcommands_and_videos_do_not_mix() {
        let parse = |words: &[&str]| Cli::try_parse_from(words);
        assert!(parse(&["track", "models"]).unwrap().command.is_some());
        let cli = parse(&["track", "./models"]).unwrap();
        assert!(cli.command.is_none() && cli.track.video.is_some());
        let cli = parse(&["track", "a.mp4", "--points", "-1,2,3"]).unwrap();
        assert_eq!(cli.track.points[0].0.t, -1.0);
        assert!(parse(&["track"]).is_err());
        assert!(parse(&["track", "--grid", "3"]).is_err());
        assert!(parse(&["track", "a.mp4", "--model", "raft"]).is_err());
    }
}
