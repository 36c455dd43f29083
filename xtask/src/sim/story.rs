//! What a history draws from, and the log of what happened in it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_sim::{Seed, Trace, WorkKind};

/// The course of one history: chance, and the log.
pub(crate) struct Story {
    pub(crate) draw: Seed,
    log: Vec<String>,
    digest: DefaultHasher,
    /// How often what happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// How deep operations are within others.
    pub(crate) depth: usize,
    /// Whether lines are printed at once.
    is_live: bool,
}

impl Story {
    pub(crate) fn new(seed: u64, is_live: bool) -> Self {
        let draw = Seed::new(seed).derive(2);
        Self { draw, log: Vec::new(), digest: DefaultHasher::new(), counts: BTreeMap::new(), depth: 0, is_live }
    }

    /// Writes a line down.
    pub(crate) fn tell(&mut self, line: impl AsRef<str>) {
        let line = format!("{:indent$}{}", "", line.as_ref(), indent = 2 * self.depth);
        if self.is_live {
            println!("{line}");
        }
        line.hash(&mut self.digest);
        self.log.push(line);
    }

    /// Counts something that happened, so that it can be seen whether histories are worth their name.
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Takes what ran on a device into the digest.
    pub(crate) fn count(&mut self, trace: &Trace) {
        for span in &trace.spans {
            self.note(match span.kind {
                WorkKind::Copy => "copies",
                WorkKind::Merge => "merges",
                WorkKind::Compute | WorkKind::Read => "kernels",
            });
            (&span.name, &span.queue, span.bytes.0, span.start, span.end).hash(&mut self.digest);
        }
        for change in &trace.memory {
            (&change.account, change.bytes, change.time).hash(&mut self.digest);
        }
    }

    /// All lines.
    pub(crate) fn log(&self) -> &[String] {
        &self.log
    }

    /// Stands for everything that was told and counted.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}
