//! Bars on a terminal; nothing when the error stream goes elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use track::{Progress, Stage};

/// Shows one bar at a time, for the stage that runs.
pub(crate) struct Bars {
    shown: bool,
    current: Mutex<Option<(Stage, ProgressBar)>>,
}

impl Bars {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            shown: !quiet && std::io::stderr().is_terminal(),
            current: Mutex::new(None),
        }
    }

    pub(crate) fn update(&self, progress: Progress) {
        if !self.shown {
            return;
        }
        let Ok(mut current) = self.current.lock() else {
            return;
        };
        let bar = match current.take() {
            Some((stage, bar)) if stage == progress.stage => bar,
            other => {
                if let Some((_, bar)) = other {
                    bar.finish_and_clear();
                }
                bar(progress)
            }
        };
        if let Some(total) = progress.total {
            bar.set_length(total as u64);
        }
        bar.set_position(progress.done as u64);
        *current = Some((progress.stage, bar));
    }

    /// Clears the line, so that what follows stands alone.
    pub(crate) fn finish(&self) {
        if let Ok(mut current) = self.current.lock()
            && let Some((_, bar)) = current.take()
        {
            bar.finish_and_clear();
        }
    }
}

fn bar(progress: Progress) -> ProgressBar {
    let (name, unit) = match progress.stage {
        Stage::Encode => ("Reading", "frames"),
        Stage::Track => ("Tracking", "steps"),
        Stage::Overlay => ("Drawing", "frames"),
        _ => ("Working", "steps"),
    };
    let template = match progress.total {
        Some(_) => format!("{name:9} {{bar:32.cyan}} {{pos}}/{{len}} {unit} {{eta:>5.dim}}"),
        None => format!("{name:9} {{spinner}} {{pos}} {unit} {{elapsed.dim}}"),
    };
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let length = progress.total.map(|n| n as u64);
    ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr()).with_style(style)
}
