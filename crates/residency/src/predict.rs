//! How long a step takes under a plan: a simulation of one copy engine and one compute queue.
//!
//! Copies run in order on the link, each `latency + bytes / rate`; units compute in visiting order, a streamed one not
//! before its copy ended. When a copy may start is the plan's [`Lookahead`]. The pass is repeated until its time is
//! steady: what the first pass finds empty, later ones find full.
//!
//! A model, not a measurement: activations, host reads and other users of the link are not in it.

use std::collections::VecDeque;

use plimsoll_device::ByteCount;

use crate::profile::finite_seconds;
use crate::{Lookahead, UnitProfile};

/// Passes simulated; the last one's time is the answer.
const PASS_COUNT: usize = 6;

/// The way from host memory to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes it moves per second. What is not above 0 moves nothing in any useful time.
    pub bytes_per_second: f64,
    /// What starting a copy costs, in seconds.
    pub latency_seconds: f64,
}

impl Link {
    /// The link that takes as long for all units as they compute: where placement matters most. What stands in for a link
    /// whose speed isn't known.
    pub fn balanced(units: &[UnitProfile]) -> Self {
        let total: u128 = units.iter().map(UnitProfile::wide_bytes).sum();
        let compute: f64 = units.iter().map(UnitProfile::compute).sum();
        let bytes_per_second = if compute > 0.0 { total as f64 / compute } else { f64::MAX };
        Self { bytes_per_second, latency_seconds: 0.0 }
    }

    /// Time of one copy, seconds.
    pub fn copy_seconds(&self, bytes: ByteCount) -> f64 {
        finite_seconds(self.latency_seconds) + self.transfer_seconds(u128::from(bytes.0))
    }

    pub(crate) fn transfer_seconds(&self, bytes: u128) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let rate = if self.bytes_per_second > 0.0 { self.bytes_per_second } else { 0.0 };
        finite_seconds(bytes as f64 / rate)
    }
}

/// Steady time of one pass over the units, seconds.
pub fn step_seconds(
    units: &[UnitProfile],
    resident: &[bool],
    ring_bytes: ByteCount,
    lookahead: Lookahead,
    link: Link,
) -> f64 {
    let mut run = Run { copies_end: 0.0, compute_end: 0.0, started: Vec::new() };
    let mut gate = match lookahead {
        Lookahead::Ring => Gate::Ring { ring_bytes: u128::from(ring_bytes.0), held: VecDeque::new(), held_bytes: 0 },
        Lookahead::Streams(count) => Gate::Streams(count),
    };
    let mut pass_start = 0.0;
    for _ in 0..PASS_COUNT {
        pass_start = run.compute_end;
        for (unit, &is_resident) in units.iter().zip(resident) {
            if is_resident {
                run.compute_end += unit.compute();
            } else {
                run.visit_streamed(unit, &mut gate, link);
            }
        }
    }
    run.compute_end - pass_start
}

/// What no order of copies can beat: all compute, or all streamed bytes over the link, seconds.
pub fn bound_seconds(units: &[UnitProfile], resident: &[bool], link: Link) -> f64 {
    let streamed = units.iter().zip(resident).filter(|(_, resident)| !**resident);
    let transfer = link.transfer_seconds(streamed.map(|(unit, _)| unit.wide_bytes()).sum());
    compute_seconds(units).max(transfer)
}

/// All compute of one pass, seconds.
pub fn compute_seconds(units: &[UnitProfile]) -> f64 {
    units.iter().map(UnitProfile::compute).sum()
}

/// The two queues.
struct Run {
    copies_end: f64,
    compute_end: f64,
    /// For each streamed visit so far, when compute came to it and when compute had done with it.
    started: Vec<(f64, f64)>,
}

/// What holds a copy back besides the copies before it.
enum Gate {
    Ring { ring_bytes: u128, held: VecDeque<(u128, f64)>, held_bytes: u128 },
    Streams(usize),
}

impl Run {
    fn visit_streamed(&mut self, unit: &UnitProfile, gate: &mut Gate, link: Link) {
        let reached = self.compute_end;
        let start = self.copies_end.max(self.gate_opens(unit, gate));
        self.copies_end = start + link.copy_seconds(unit.bytes);
        self.compute_end = reached.max(self.copies_end) + unit.compute();
        self.started.push((reached, self.compute_end));
        if let Gate::Ring { held, held_bytes, .. } = gate {
            held.push_back((unit.wide_bytes(), self.compute_end));
            *held_bytes += unit.wide_bytes();
        }
    }

    fn gate_opens(&self, unit: &UnitProfile, gate: &mut Gate) -> f64 {
        match gate {
            Gate::Ring { ring_bytes, held, held_bytes } => {
                let mut opens: f64 = 0.0;
                while *held_bytes + unit.wide_bytes() > *ring_bytes
                    && let Some((bytes, consumed)) = held.pop_front()
                {
                    *held_bytes -= bytes;
                    opens = opens.max(consumed);
                }
                opens
            }
            Gate::Streams(0) => self.compute_end,
            Gate::Streams(count) => {
                let visit = self.started.len();
                let reached = match (visit + 1).checked_sub(*count) {
                    Some(visited) if visited < visit => self.started[visited].0,
                    Some(_) => self.compute_end,
                    None => 0.0,
                };
                let consumed = visit.checked_sub(*count).map_or(0.0, |visited| self.started[visited].1);
                reached.max(consumed)
            }
        }
    }
}
