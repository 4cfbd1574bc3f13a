//! The program `track`: follows points through a video.

mod args;
mod bench;
mod doctor;
mod explain;
mod fail;
mod golden;
mod job;
mod log;
mod progress;
mod summary;

use std::io::{ErrorKind, Write};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use clap::{CommandFactory, Parser};
use track::{Cancel, OverlayStyle, Profiler, Watch};

use crate::args::{Cli, Command};
use crate::fail::{Failure, code, usage};
use crate::job::Job;
use crate::progress::Bars;
use crate::summary::Summary;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return answer(&e),
    };
    log::start(cli.quiet, cli.verbose);
    // A panic is a fault of ours: it is said in the same form as every failure and has its exit code.
    std::panic::set_hook(Box::new(|panic| {
        complain(&Failure::from(anyhow::anyhow!(
            "internal fault: {panic}; please report it"
        )));
    }));
    match std::panic::catch_unwind(AssertUnwindSafe(|| dispatch(cli))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            complain(&failure);
            ExitCode::from(failure.code)
        }
        Err(_) => ExitCode::from(code::INTERNAL),
    }
}

fn complain(failure: &Failure) {
    // A closed error stream leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "error: {failure}");
}

/// What the command line's reader has to say: help where it was asked for, one sentence where it was not.
fn answer(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(code::USAGE)
        }
        _ => {
            complain(&usage(sentence(&error.render().to_string())));
            ExitCode::from(code::USAGE)
        }
    }
}

/// The first paragraphs of a message, without the usage that follows them, as one line.
fn sentence(message: &str) -> String {
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .into_iter()
        .filter_map(|mark| message.find(mark))
        .min();
    let text = &message[..end.unwrap_or(message.len())];
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.replace("\n\n  tip:", ";")
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Some(Command::Doctor { json }) => print(&doctor::doctor(json)?),
        Some(Command::Models { json }) => print(&doctor::models(json)?),
        Some(Command::Bench(args)) => {
            let cancel = Cancel::new();
            listen_for_interrupts(&cancel)?;
            let text = bench::run(&args, &cancel, cli.quiet)?;
            if cli.quiet { Ok(()) } else { print(&text) }
        }
        Some(Command::Golden(args)) => {
            let cancel = Cancel::new();
            listen_for_interrupts(&cancel)?;
            golden::run(args, &cancel, cli.quiet, print)
        }
        Some(Command::Explain(args)) => print(&explain::run(&args)?),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "track", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        None => {
            let cancel = Cancel::new();
            listen_for_interrupts(&cancel)?;
            let job = Job::new(cli.track)?;
            run(&job, &cancel, cli.quiet, cli.verbose > 0)
        }
    }
}

fn run(job: &Job, cancel: &Cancel, quiet: bool, verbose: bool) -> Result<(), Failure> {
    let begun = Instant::now();
    let bars = Bars::new(quiet);
    let profiler = if verbose {
        Profiler::on()
    } else {
        Profiler::off()
    };
    let watch = Watch::new()
        .on_progress(|progress| bars.update(progress))
        .cancelled_by(cancel)
        .profiled_by(&profiler);
    let tracker = job.tracker.build()?;
    let tracking = Instant::now();
    let result = tracker.track(&job.clip, &job.queries, &watch);
    let tracking = tracking.elapsed();
    bars.finish();
    let tracks = result?;
    // Overlays first: they take longer, and an interrupted run should leave as little as it can.
    let style = OverlayStyle::default();
    for overlay in &job.overlays {
        let drawn = tracks.write_overlay(&job.clip, overlay, &style, &watch);
        bars.finish();
        drawn?;
    }
    for output in &job.outputs {
        tracks.write(output)?;
    }
    if verbose {
        let _ = writeln!(std::io::stderr(), "{}", profiler.report());
    }
    let summary = Summary::new(
        &tracks,
        &job.outputs,
        &job.overlays,
        tracking,
        begun.elapsed(),
    );
    if job.json {
        let text = serde_json::to_string_pretty(&summary).map_err(anyhow::Error::from)?;
        print(&(text + "\n"))
    } else if quiet {
        Ok(())
    } else {
        print(&summary.text())
    }
}

/// The first interrupt ends the run at its next step and leaves nothing half-written; a second one ends the
/// program at once.
fn listen_for_interrupts(cancel: &Cancel) -> Result<(), Failure> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            std::process::exit(i32::from(code::INTERRUPTED));
        }
        cancel.cancel();
    })
    .map_err(|e| {
        anyhow::Error::new(e)
            .context("cannot listen for interrupts")
            .into()
    })
}

/// Prints to standard output. A reader that has gone away, as `| head` does, is no fault.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(anyhow::Error::new(e)
            .context("cannot print the result")
            .into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn slips_are_answered_in_one_sentence() {
        let said = |words: &[&str]| {
            let error = Cli::try_parse_from(words).unwrap_err();
            usage(sentence(&error.render().to_string())).to_string()
        };
        assert_eq!(
            said(&["track", "a.mp4", "--grid", "x"]),
            "invalid value 'x' for '--grid <N>': write a number from 1 to 1000"
        );
        assert_eq!(
            said(&["track", "a.mp4", "--overla", "b.mp4"]),
            "unexpected argument '--overla' found; a similar argument exists: '--overlay'"
        );
        assert!(said(&["track", "--grid", "3"]).contains("<VIDEO>"));
    }
}
