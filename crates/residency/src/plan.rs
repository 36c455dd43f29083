//! What a plan says: which units stay on the device under one budget, and what the others need to pass through.
//!
//! A value. [`Planner`](crate::Planner) makes it; nothing here decides or moves anything.

use plimsoll_device::ByteCount;
use serde::Serialize;

use crate::UnitProfile;
use crate::profile::narrow;

/// How far copies run ahead of compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookahead {
    /// As far as the ring's bytes hold: a copy starts once enough older units were consumed.
    Ring,
    /// By count: with `n` streams, the copy of streamed unit k may start once the compute before streamed unit
    /// k - n + 1 is done. With 0, copies run on the compute queue itself, and nothing overlaps.
    Streams(usize),
}

/// For one budget: which units are resident, and the reserve for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// For each unit, in visiting order, whether it stays on the device.
    pub resident: Vec<bool>,
    /// Bytes of the resident units.
    pub resident_bytes: ByteCount,
    /// Bytes of the streamed units: what one pass moves.
    pub streamed_bytes: ByteCount,
    /// What streamed units are copied into; at least the largest of them.
    pub ring_bytes: ByteCount,
    /// What using a streamed unit takes beside its copy: the most of any.
    pub transient_bytes: ByteCount,
    /// Scratch memory of the copies.
    pub staging_bytes: ByteCount,
    /// Side queues for copies; 0 copies on the compute queue.
    pub offload_streams: usize,
    /// How far copies run ahead.
    pub lookahead: Lookahead,
}

impl Plan {
    /// All that the component takes on the device: residents and reserve.
    pub fn total_bytes(&self) -> ByteCount {
        self.resident_bytes.saturating_add(self.reserve_bytes())
    }

    /// Ring, transients and staging.
    pub fn reserve_bytes(&self) -> ByteCount {
        self.ring_bytes.saturating_add(self.transient_bytes).saturating_add(self.staging_bytes)
    }

    /// How many units are streamed.
    pub fn streamed_count(&self) -> usize {
        self.resident.iter().filter(|resident| !**resident).count()
    }
}

/// What is the same for every plan of a component.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) staging_bytes: ByteCount,
    pub(crate) offload_streams: usize,
    pub(crate) lookahead: Lookahead,
}

impl Fixed {
    /// The plan that keeps these units.
    pub(crate) fn plan(
        self,
        units: &[UnitProfile],
        resident: Vec<bool>,
        ring_bytes: ByteCount,
        transient_bytes: ByteCount,
    ) -> Plan {
        let sum = |of: bool| {
            narrow(
                units.iter().zip(&resident).filter(|(_, kept)| **kept == of).map(|(unit, _)| unit.wide_bytes()).sum(),
            )
        };
        let (resident_bytes, streamed_bytes) = (sum(true), sum(false));
        let Self { staging_bytes, offload_streams, lookahead } = self;
        Plan {
            resident,
            resident_bytes,
            streamed_bytes,
            ring_bytes,
            transient_bytes,
            staging_bytes,
            offload_streams,
            lookahead,
        }
    }
}

/// Not even the smallest plan fits. Raise the budget by the shortfall, or use fewer offload streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the smallest plan needs {needed}, but only {available} is available: {} short", .needed.saturating_sub(*.available))]
pub struct DoesNotFit {
    /// The least that would have been enough: with one byte less there is no plan.
    pub needed: ByteCount,
    /// What there is.
    pub available: ByteCount,
}
