//! The program `track`: follows points through a video.

mod args;
mod doctor;
mod fail;
mod job;
mod progress;
mod summary;

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::{CommandFactory, Parser};
use tracing_subscriber::filter::LevelFilter;
use track::{Cancel, OverlayStyle, Profiler, Watch};

use crate::args::{Cli, Command};
use crate::fail::{Failure, code};
use crate::job::Job;
use crate::progress::Bars;
use crate::summary::Summary;

fn main() -> ExitCode {
    // Usage errors end here with code 2, --help and --version with 0.
    let cli = Cli::parse();
    start_log(&cli);
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A closed error stream leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Some(Command::Doctor { json }) => print(&doctor::doctor(json)?),
        Some(Command::Models { json }) => print(&doctor::models(json)?),
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

/// Notes of the libraries, on the error stream.
fn start_log(cli: &Cli) {
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::INFO,
        (_, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // https://no-color.org: any value that is not empty.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(!plain && std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
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
