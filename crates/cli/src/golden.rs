//! `track golden`: what clips gave is recorded, and later compared with.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use track::golden::{self, Check, CheckOptions, Golden, RecordOptions, Tolerance, Verdict};
use track::{
    Cancel, DeviceChoice, FrameRange, Position, Precision, Queries, Tracker, Watch, Weights,
};

use crate::args::{PointArg, ResolutionArg, grid, threads};
use crate::fail::{Failure, code, usage};
use crate::job::DEFAULT_GRID;
use crate::progress::Bars;

const EXAMPLES: &str = "\
Examples:
  track golden record clips/*.mp4 -o goldens --grid 8
      Track a grid in every clip and keep positions, logits and what decided them.
  track golden check goldens
      Track the same again: one table of what moved and by how much. Exit code 6 if that is too much.
  track golden check goldens --device cuda --dtype f16 --json > moved.json
      How far is f16 on this GPU from what was recorded?
  track golden check goldens --update
      Print how far each number moved, then record the new ones.

What is recorded, and what is allowed: docs/golden.md.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct GoldenArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Track clips and keep what they gave in a folder.
    Record(Box<RecordArgs>),
    /// Track the clips of a folder again, and say what moved and by how much.
    Check(Box<CheckArgs>),
}

#[derive(Debug, Args)]
struct RecordArgs {
    /// Videos, folders or quoted patterns of stills. The same points are followed in each.
    #[arg(value_name = "CLIP", required = true)]
    clips: Vec<PathBuf>,

    /// The folder to record into. It appears, or changes, only when everything is complete.
    #[arg(short, long = "output", value_name = "DIR", required = true)]
    output: PathBuf,

    /// Replace what the folder holds. Its tolerances are kept.
    #[arg(long)]
    replace: bool,

    /// Lay an N by N grid over the first frame [default: 10 when no points are given].
    #[arg(long, value_name = "N", value_parser = grid, help_heading = "Points")]
    grid: Option<usize>,

    /// Follow the point at x, y (pixels) on frame t. May be given again.
    #[arg(
        long,
        value_name = "T,X,Y",
        allow_hyphen_values = true,
        help_heading = "Points"
    )]
    points: Vec<PointArg>,

    /// Read points from a .csv or a .json, as for track VIDEO.
    #[arg(long, value_name = "FILE", help_heading = "Points")]
    points_file: Option<PathBuf>,

    /// Start at this frame (120) or time (2.5s, 1:02.5) of every clip. It becomes frame 0.
    #[arg(
        long,
        value_name = "POSITION",
        allow_hyphen_values = true,
        help_heading = "Video"
    )]
    start: Option<Position>,

    /// Stop before this frame or time.
    #[arg(
        long,
        value_name = "POSITION",
        allow_hyphen_values = true,
        help_heading = "Video"
    )]
    end: Option<Position>,

    /// The arithmetic: f32, tf32, f16 or bf16, as far as the device has it.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "f32",
        help_heading = "Model"
    )]
    dtype: Precision,

    /// The picture that the model works on: its own size (model), the video's (clip), or WIDTHxHEIGHT.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "model",
        help_heading = "Model"
    )]
    resolution: ResolutionArg,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// A folder that 'track golden record' wrote.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Where the clips lie, if not where they were recorded.
    #[arg(long, value_name = "FOLDER")]
    clips: Option<PathBuf>,

    /// Allow this instead of what the folder says: median=PX, p99=PX, logit=N or visible=PERCENT. May be given
    /// again.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    tolerance: Vec<Limit>,

    /// Record what was found in place of what was recorded, whatever the table says.
    #[arg(long)]
    update: bool,

    /// Print the table's figures as JSON, for machines.
    #[arg(long)]
    json: bool,

    /// The arithmetic [default: as recorded].
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    dtype: Option<Precision>,

    #[command(flatten)]
    run: RunArgs,
}

/// What both share.
#[derive(Debug, Args)]
struct RunArgs {
    /// Where to compute: auto, cpu, cuda or cuda:1.
    #[arg(long, default_value = "auto", help_heading = "Model")]
    device: DeviceChoice,

    /// Weights to use: a .safetensors file or a PyTorch checkpoint [default: built in; for a check, as recorded].
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    weights: Option<PathBuf>,

    /// Threads that compute [default: one per core].
    #[arg(long, value_name = "N", value_parser = threads, help_heading = "Model")]
    threads: Option<usize>,
}

/// One limit of a tolerance as it is typed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Median(f64),
    P99(f64),
    Logit(f64),
    Visible(f64),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            "write median=PX, p99=PX, logit=N or visible=PERCENT, for example p99=0.5".to_owned()
        };
        let (name, value) = text.split_once('=').ok_or_else(expected)?;
        let value: f64 = value.trim().parse().map_err(|_| expected())?;
        match name.trim() {
            "visible" if (0.0..=100.0).contains(&value) => Ok(Self::Visible(value / 100.0)),
            "visible" => Err("visible is in per cent; write a number from 0 to 100".to_owned()),
            _ if !(value.is_finite() && value >= 0.0) => Err("write a number from 0".to_owned()),
            "median" => Ok(Self::Median(value)),
            "p99" => Ok(Self::P99(value)),
            "logit" => Ok(Self::Logit(value)),
            _ => Err(expected()),
        }
    }
}

/// Runs the command; what is to be printed, if anything, goes through `print`.
pub(crate) fn run(
    args: GoldenArgs,
    cancel: &Cancel,
    quiet: bool,
    print: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match args.command {
        Command::Record(args) => record(*args, cancel, quiet, print),
        Command::Check(args) => check(*args, cancel, quiet, print),
    }
}

fn record(
    args: RecordArgs,
    cancel: &Cancel,
    quiet: bool,
    print: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let queries = queries(&args)?;
    let tracker = Tracker::builder()
        .weights(args.run.weights.map_or(Weights::Default, Weights::File))
        .device(args.run.device)
        .precision(args.dtype)
        .resolution(args.resolution.0)
        .threads(args.run.threads)
        .build()?;
    let options = RecordOptions {
        range: FrameRange {
            start: args.start,
            end: args.end,
        },
        replace: args.replace,
    };
    let recorded = watched(cancel, quiet, |watch| {
        golden::record(
            &tracker,
            &args.clips,
            &queries,
            &args.output,
            &options,
            watch,
        )
    })?;
    if quiet {
        return Ok(());
    }
    let clips = recorded.clips();
    let mut text = String::new();
    for clip in clips {
        text += &format!(
            "{}: {} points on {} frames\n",
            clip.name, clip.points, clip.frames
        );
    }
    let made_by = recorded.recorded();
    text += &format!(
        "recorded in {}: {} in {} on {}\n",
        args.output.display(),
        made_by.model,
        made_by.precision,
        made_by.device
    );
    print(&text)
}

fn queries(args: &RecordArgs) -> Result<Queries, Failure> {
    let mut queries = Queries::default();
    if !args.points.is_empty() {
        queries = queries.and(Queries::points(args.points.iter().map(|p| p.0.clone())));
    }
    if let Some(file) = &args.points_file {
        queries = queries.and(Queries::read(file)?);
    }
    match args.grid {
        Some(n) => Ok(queries.and(Queries::grid(n))),
        None if queries == Queries::default() => Ok(Queries::grid(DEFAULT_GRID)),
        None => Ok(queries),
    }
}

fn check(
    args: CheckArgs,
    cancel: &Cancel,
    quiet: bool,
    print: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let golden = Golden::open(&args.folder)?;
    if let Some(clips) = &args.clips
        && !clips.is_dir()
    {
        return Err(usage(format!(
            "{}: is no folder; --clips takes the folder where the clips lie",
            clips.display()
        )));
    }
    let mut builder = golden
        .builder()
        .device(args.run.device)
        .threads(args.run.threads);
    if let Some(precision) = args.dtype {
        builder = builder.precision(precision);
    }
    if let Some(weights) = args.run.weights {
        builder = builder.weights(Weights::File(weights));
    }
    let tracker = builder.build()?;
    let options = CheckOptions {
        clips: args.clips,
        tolerance: tolerance(golden.tolerance(tracker.precision()), &args.tolerance),
    };
    let check = watched(cancel, quiet, |watch| {
        golden::check(&golden, &tracker, &options, watch)
    })?;
    if args.json {
        print(&(check.to_json()? + "\n"))?;
    } else if !quiet {
        print(&check.to_string())?;
    }
    if args.update && check.verdict() != Verdict::Unchecked {
        check.accept(&golden)?;
        tracing::info!("{}: recorded anew", args.folder.display());
        return Ok(());
    }
    judge(&check)
}

/// What the folder allows with some limits replaced; `None` where none is.
fn tolerance(mut allowed: Tolerance, limits: &[Limit]) -> Option<Tolerance> {
    for limit in limits {
        match *limit {
            Limit::Median(v) => allowed.median_px = v,
            Limit::P99(v) => allowed.p99_px = v,
            Limit::Logit(v) => allowed.logit = Some(v),
            Limit::Visible(v) => allowed.visible_equal = v,
        }
    }
    (!limits.is_empty()).then_some(allowed)
}

/// The exit code of a check: what kept a clip from being checked comes before what moved.
fn judge(check: &Check) -> Result<(), Failure> {
    let clips = check.clips.len();
    if let Some((name, error)) = check.failure() {
        let failed = check.count(Verdict::Unchecked);
        return Err(Failure {
            code: code::of(error.kind()),
            error: anyhow::anyhow!(
                "{failed} of {clips} clips could not be checked; {name}: {error}"
            ),
        });
    }
    match check.count(Verdict::Moved) {
        0 => Ok(()),
        moved => Err(Failure {
            code: code::MOVED,
            error: anyhow::anyhow!(
                "{moved} of {clips} clips moved further than allowed; if that is as it should be, record them again with --update"
            ),
        }),
    }
}

/// Runs something that tracks, with bars on a terminal.
fn watched<T>(
    cancel: &Cancel,
    quiet: bool,
    work: impl FnOnce(&Watch<'_>) -> track::Result<T>,
) -> Result<T, Failure> {
    let bars = Bars::new(quiet);
    let watch = Watch::new()
        .on_progress(|progress| bars.update(progress))
        .cancelled_by(cancel);
    let result = work(&watch);
    bars.finish();
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_and_in_their_units() {
        assert_eq!("median=0.5".parse(), Ok(Limit::Median(0.5)));
        assert_eq!("visible=99".parse(), Ok(Limit::Visible(0.99)));
        for bad in [
            "median",
            "median=",
            "p98=1",
            "p99=-1",
            "p99=inf",
            "visible=101",
            "logit=nan",
            "=1",
        ] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
        let folder = Tolerance::of(Precision::F16);
        assert_eq!(tolerance(folder, &[]), None);
        let changed = tolerance(folder, &[Limit::P99(2.0), Limit::Logit(1.0)]);
        let expected = Tolerance {
            p99_px: 2.0,
            logit: Some(1.0),
            ..folder
        };
        assert_eq!(changed, Some(expected));
    }
}
