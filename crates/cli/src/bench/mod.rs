//! `track bench`: how long a clip takes, where the time goes, and what the device could do.

mod args;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use track::bench::{BenchOutcome, BenchProgress, BenchStage, BenchTrace};
use track::profile::record::BenchReport;
use track::profile::trace::{Pass, chrome_trace};
use track::profile::{against, html, table};
use track::{Cancel, Watch, output};

pub(crate) use self::args::BenchArgs;
use crate::fail::{Failure, code};
use crate::job::refuse_clashes;

/// What is printed. Files are written on the way.
pub(crate) fn run(args: &BenchArgs, cancel: &Cancel, quiet: bool) -> Result<String, Failure> {
    check_paths(args)?;
    let old = args.against.as_deref().map(read).transpose()?;
    let (report, traces) = match &args.from {
        Some(path) => (read(path)?, Vec::new()),
        None => {
            let BenchOutcome {
                mut report,
                traces,
                notes,
            } = measure(args, cancel, quiet)?;
            for note in notes {
                tracing::warn!("{note}");
            }
            report.commit = option_env!("TRACK_COMMIT").map(str::to_owned);
            (report, traces)
        }
    };
    if let Some(path) = &args.json {
        let mut text = serde_json::to_vec_pretty(&report).map_err(anyhow::Error::from)?;
        text.push(b'\n');
        output::write(path, &text)?;
    }
    if let Some(path) = &args.trace {
        let text = serde_json::to_vec(&trace(&report, &traces)).map_err(anyhow::Error::from)?;
        output::write(path, &text)?;
    }
    if let Some(path) = &args.html {
        output::write(path, html::page(&report).as_bytes())?;
    }
    let mut text = table::text(&report);
    if let Some(old) = old {
        text.push('\n');
        text.push_str(&against::text(&old, &report));
    }
    Ok(text)
}

/// A slip in a path is found before the long part.
fn check_paths(args: &BenchArgs) -> Result<(), Failure> {
    let outputs = [&args.json, &args.trace, &args.html];
    let outputs: Vec<&Path> = outputs
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    let inputs = [&args.video, &args.weights, &args.against, &args.from];
    refuse_clashes(&outputs, inputs.into_iter().flatten())?;
    for path in outputs {
        output::check_writable(path)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<BenchReport, Failure> {
    let failed = |reason: String| Failure {
        code: code::INPUT,
        error: anyhow::anyhow!(
            "{}: cannot be read as a report of a benchmark: {reason}; give a file that 'track bench --json' wrote",
            path.display()
        ),
    };
    let text = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    against::parse(&text).map_err(failed)
}

fn measure(args: &BenchArgs, cancel: &Cancel, quiet: bool) -> Result<BenchOutcome, Failure> {
    let bar = bar(quiet);
    let watch = Watch::new().cancelled_by(cancel);
    let outcome = args.bench().run(&watch, &|progress| show(&bar, progress));
    bar.finish_and_clear();
    Ok(outcome?)
}

fn bar(quiet: bool) -> ProgressBar {
    let target = if !quiet && std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{msg:20} {bar:32.cyan} {pos}/{len} runs {eta:>5.dim}");
    ProgressBar::with_draw_target(Some(0), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: BenchProgress) {
    let stage = match progress.stage {
        BenchStage::Warmup => "warming up",
        BenchStage::Timed => "timing",
        _ => "timing layers",
    };
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(format!("{}: {stage}", progress.precision));
}

fn trace(report: &BenchReport, traces: &[BenchTrace]) -> serde_json::Value {
    let passes: Vec<_> = traces
        .iter()
        .map(|trace| Pass {
            dtype: trace.precision.name(),
            calls: &trace.calls,
        })
        .collect();
    chrome_trace(&report.program, &report.device.name, &passes)
}
