//! What a history draws from, and the log of what happened in it.

use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_sim::{Seed, Trace};

/// The course of one history: chance, and the log.
pub(crate) struct Story {
    pub(crate) draw: Seed,
    log: Vec<String>,
    digest: DefaultHasher,
    /// How deep operations are within others.
    pub(crate) depth: usize,
}

impl Story {
    pub(crate) fn new(seed: u64) -> Self {
        Self { draw: Seed::new(seed).derive(2), log: Vec::new(), digest: DefaultHasher::new(), depth: 0 }
    }

    /// Writes a line down.
    pub(crate) fn tell(&mut self, line: impl AsRef<str>) {
        let line = format!("{:indent$}{}", "", line.as_ref(), indent = 2 * self.depth);
        line.hash(&mut self.digest);
        self.log.push(line);
    }

    /// Takes what ran on a device into the digest.
    pub(crate) fn count(&mut self, trace: &Trace) {
        for span in &trace.spans {
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
