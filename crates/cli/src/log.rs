//! Notes of the libraries on the error stream, in the words of the program's own messages.

use std::collections::HashSet;
use std::fmt;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Starts the log: warnings, unless `quiet`; with each `verbose` a level more.
pub(crate) fn start(quiet: bool, verbose: u8) {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::INFO,
        (_, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // https://no-color.org: any value that is not empty.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(terminal && !plain)
        .event_format(Lines {
            terminal,
            said: Mutex::default(),
        })
        .init();
}

/// `warning: …`, one line each.
struct Lines {
    /// A progress bar may stand on the line: it is wiped, and comes back with its next step.
    terminal: bool,
    /// Warnings so far. A video is decoded twice, but its faults are told once.
    said: Mutex<HashSet<String>>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (name, color) = match *event.metadata().level() {
            Level::ERROR => ("error", 31),
            Level::WARN => ("warning", 33),
            Level::INFO => ("note", 36),
            Level::DEBUG => ("debug", 2),
            Level::TRACE => ("trace", 2),
        };
        let mut text = String::new();
        context
            .field_format()
            .format_fields(Writer::new(&mut text), event)?;
        if name == "warning"
            && let Ok(mut said) = self.said.lock()
            && !said.insert(text.clone())
        {
            return Ok(());
        }
        if self.terminal {
            out.write_str("\r\u{1b}[2K")?;
        }
        if out.has_ansi_escapes() {
            writeln!(out, "\u{1b}[{color}m{name}\u{1b}[0m: {text}")
        } else {
            writeln!(out, "{name}: {text}")
        }
    }
}
