//! What a person sees while a picture is drawn: a bar for each phase, and the memory table at its end if asked for.

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_device::MemoryReport;
use plimsoll_pipeline::{Phase, Progress};

use crate::budget::Budget;
use crate::{console, memory_table};

/// Bars on stderr, hidden when that is no terminal.
pub(crate) struct Bars {
    announcement: Option<String>,
    budget: Budget,
    report: Option<ReportTo>,
    current: Option<(Phase, ProgressBar)>,
    /// How printing to stdout went. A failure does not stop the drawing; it is told after it.
    printed: anyhow::Result<()>,
}

/// Where memory tables go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportTo {
    Stdout,
    /// Where stdout holds JSON.
    Stderr,
}

impl Bars {
    /// `announcement` is a line for stdout, printed once the request has been found possible and work begins.
    pub(crate) fn new(announcement: Option<String>, budget: Budget, report: Option<ReportTo>) -> Self {
        Self { announcement, budget, report, current: None, printed: Ok(()) }
    }

    /// Whether stdout took everything.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.printed
    }

    fn print(&mut self, text: &str) {
        if self.printed.is_ok() {
            self.printed = console::print(text);
        }
    }
}

impl Progress for Bars {
    fn begin(&mut self, phase: Phase, step_count: usize) {
        if let Some(announcement) = self.announcement.take() {
            self.print(&format!("{announcement}\n"));
        }
        let bar = ProgressBar::with_draw_target(Some(step_count as u64), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {elapsed}").expect("the template is valid");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(phase.to_string());
        bar.tick();
        self.current = Some((phase, bar));
    }

    fn step(&mut self) -> bool {
        if let Some((_, bar)) = &self.current {
            bar.inc(1);
        }
        true
    }

    fn end(&mut self, memory: &MemoryReport) {
        let Some((phase, bar)) = self.current.take() else { return };
        bar.finish();
        if !bar.is_hidden() {
            // A finished bar leaves the cursor behind it.
            let _ = writeln!(std::io::stderr());
        }
        let Some(to) = self.report else { return };
        let table = memory_table::render(&format!("memory at the end of {phase}"), memory, self.budget);
        match to {
            ReportTo::Stdout => self.print(&table),
            // The same numbers are in the JSON.
            ReportTo::Stderr => drop(std::io::stderr().write_all(table.as_bytes())),
        }
    }
}
