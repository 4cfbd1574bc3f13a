//! What was typed becomes what is to be done: defaults filled in, contradictions refused, outputs named.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use track::{Clip, Format, Mask, Queries, Tracker, TrackerBuilder, Weights};

use crate::args::{Cli, TrackArgs};
use crate::fail::{Failure, usage};

/// Points along a side of the grid when nothing is said.
pub(crate) const DEFAULT_GRID: usize = 10;

/// Everything that one run is to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) clip: Clip,
    pub(crate) queries: Queries,
    pub(crate) tracker: TrackerBuilder,
    pub(crate) outputs: Vec<PathBuf>,
    pub(crate) overlays: Vec<PathBuf>,
    pub(crate) json: bool,
}

impl Job {
    /// Reads what is small (points, a mask, the video's head) and checks every path, so that a slip is found
    /// before the long part begins.
    pub(crate) fn new(args: TrackArgs) -> Result<Self, Failure> {
        let Some(video) = args.video.clone() else {
            return Err(usage("no video was given; see track --help"));
        };
        refuse_command(&video)?;
        let (outputs, overlays) = outputs(&args, &video);
        // Names first: they cost nothing, and a wrong one should not hide behind a slow folder.
        for output in &outputs {
            Format::of(output)?;
        }
        let inputs = [
            Some(&video),
            args.points_file.as_ref(),
            args.mask.as_ref(),
            args.weights.as_ref(),
        ];
        let all: Vec<&Path> = outputs
            .iter()
            .chain(&overlays)
            .map(PathBuf::as_path)
            .collect();
        refuse_clashes(&all, inputs.into_iter().flatten())?;
        let clip = open(&args, &video)?;
        for output in &outputs {
            track::output::check_writable(output)?;
        }
        for overlay in &overlays {
            track::check_overlay(&clip, overlay)?;
        }
        let queries = queries(&args)?;
        // The picture's size is known now, so points outside need not wait for the model.
        queries.resolve(clip.width(), clip.height())?;
        let tracker = Tracker::builder()
            .weights(args.weights.map_or(Weights::Default, Weights::File))
            .model(args.model.map(|m| m.0))
            .device(args.device)
            .precision(args.dtype)
            .resolution(args.resolution.0)
            .threads(args.threads)
            .check_finite(args.check_finite);
        Ok(Self {
            clip,
            queries,
            tracker,
            outputs,
            overlays,
            json: args.json,
        })
    }
}

/// Behind an option a command's name is taken for a video, which is hardly what was meant.
fn refuse_command(video: &Path) -> Result<(), Failure> {
    let name = video.to_string_lossy();
    match Cli::command().find_subcommand(name.as_ref()) {
        None if name != "help" => Ok(()),
        _ => Err(usage(format!(
            "'{name}' is a command and must come before every option; a video of that name is given as ./{name}"
        ))),
    }
}

fn open(args: &TrackArgs, video: &Path) -> Result<Clip, Failure> {
    let mut options = Clip::options();
    if let Some(start) = args.start {
        options = options.start(start);
    }
    if let Some(end) = args.end {
        options = options.end(end);
    }
    Ok(options.open(video)?)
}

/// Where results go. Without any, `<stem>.tracks.json` and `<stem>.tracks.mp4` in the current folder; with a
/// file of tracks named, nothing but what is named.
fn outputs(args: &TrackArgs, video: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let beside = |extension: &str| PathBuf::from(format!("{}.tracks.{extension}", stem(video)));
    let mut outputs = args.output.clone();
    let mut overlays = args.overlay.clone();
    if outputs.is_empty() {
        outputs.push(beside("json"));
        if overlays.is_empty() {
            overlays.push(beside("mp4"));
        }
    }
    (outputs, overlays)
}

/// What outputs are named after: the video without its extension, the folder of a pattern, and no character
/// that a shell or a file system might take badly.
fn stem(video: &Path) -> String {
    let pattern = |p: &Path| p.to_string_lossy().contains(['*', '?', '[']);
    let plain = video.ancestors().find(|p| !pattern(p));
    let name = plain
        .and_then(|p| {
            if p == video && !p.is_dir() {
                p.file_stem()
            } else {
                p.file_name()
            }
        })
        .map(|name| name.to_string_lossy().into_owned());
    match name {
        Some(name) => name,
        None => "video".to_owned(),
    }
}

/// Refuses outputs that would replace an input or each other.
pub(crate) fn refuse_clashes<'a>(
    outputs: &[&Path],
    inputs: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let inputs: Vec<_> = inputs.map(|p| (p, resolved(p))).collect();
    for (n, output) in outputs.iter().enumerate() {
        let place = resolved(output);
        if let Some((input, _)) = inputs.iter().find(|(_, input)| *input == place) {
            return Err(usage(format!(
                "{}: cannot be written because it is the input {}; give the output another name",
                output.display(),
                input.display()
            )));
        }
        if outputs[..n]
            .iter()
            .any(|earlier| resolved(earlier) == place)
        {
            return Err(usage(format!(
                "{}: is named twice as an output; give each output its own name",
                output.display()
            )));
        }
    }
    Ok(())
}

/// A path without links and detours, also for a file that is not there yet.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}

fn queries(args: &TrackArgs) -> Result<Queries, Failure> {
    let mut queries = Queries::default();
    let points = !args.points.is_empty() || args.points_file.is_some();
    if !args.points.is_empty() {
        queries = queries.and(Queries::points(args.points.iter().map(|p| p.0.clone())));
    }
    if let Some(file) = &args.points_file {
        queries = queries.and(Queries::read(file)?);
    }
    let laid = match (&args.mask, args.grid) {
        (Some(mask), n) => Queries::mask(Mask::open(mask)?, n.unwrap_or(DEFAULT_GRID)),
        (None, Some(n)) => Queries::grid(n),
        (None, None) if !points => Queries::grid(DEFAULT_GRID),
        (None, None) if args.query_frame.is_some() => {
            return Err(usage(
                "--query-frame places a grid or a mask, but only points were given; put the frame into each point as t,x,y",
            ));
        }
        (None, None) => return Ok(queries),
    };
    Ok(queries.and(laid.on_frame(args.query_frame.unwrap_or(0.0))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn args(words: &[&str]) -> TrackArgs {
        let words = ["track"].iter().chain(words);
        Cli::try_parse_from(words).unwrap().track
    }

    #[test]
    fn outputs_are_named_after_the_video_and_only_when_none_are_given() {
        let named = |words: &[&str]| {
            let args = args(words);
            let video = args.video.clone().unwrap();
            let (outputs, overlays) = outputs(&args, &video);
            let all = outputs.into_iter().chain(overlays);
            all.map(|p| p.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named(&["x/a.b.mp4"]), ["a.b.tracks.json", "a.b.tracks.mp4"]);
        assert_eq!(named(&["a.mp4", "-o", "b.csv"]), ["b.csv"]);
        assert_eq!(
            named(&["a.mp4", "--overlay", "b.gif"]),
            ["a.tracks.json", "b.gif"]
        );
        assert_eq!(named(&["shots/*.png"])[0], "shots.tracks.json");
        assert_eq!(named(&["*.png"])[0], "video.tracks.json");
    }

    #[test]
    fn commands_are_not_taken_for_videos() {
        assert!(refuse_command(Path::new("doctor")).is_err());
        assert!(refuse_command(Path::new("./doctor")).is_ok());
        assert!(refuse_command(Path::new("a.mp4")).is_ok());
    }

    #[test]
    fn points_grids_and_masks_add_up() {
        let count = |words: &[&str]| {
            let all = [&["a.mp4"], words].concat();
            queries(&args(&all)).unwrap().resolve(64, 64).unwrap().len()
        };
        assert_eq!(count(&[]), 100);
        assert_eq!(count(&["--grid", "3"]), 9);
        assert_eq!(count(&["--points", "0,1,2"]), 1);
        assert_eq!(count(&["--points", "0,1,2", "--grid", "2"]), 5);
        assert!(queries(&args(&["a.mp4", "--points", "0,1,2", "--query-frame", "3"])).is_err());
    }

    #[test]
    fn an_output_is_never_an_input_nor_another_output() {
        let (a, b) = (PathBuf::from("a.mp4"), PathBuf::from("./a.mp4"));
        assert!(refuse_clashes(&[&b], [&a].into_iter()).is_err());
        assert!(refuse_clashes(&[&a, &b], [].into_iter()).is_err());
        assert!(refuse_clashes(&[&a], [].into_iter()).is_ok());
    }
}
