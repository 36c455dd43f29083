//! What adapters do to a component's units, as far as the engine must know: how much, where, and whose.
//!
//! Invariant: a unit's patch is one value, merged or unmerged, so that no adapter can be applied both ways or twice.

use std::fmt;
use std::sync::Arc;

use plimsoll_device::{Buffer, ByteCount, Device, DeviceError, Queue};

use crate::Unit;

/// The identity of the adapters on a component with their strengths: a hash of them. 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchSetId(pub u64);

impl fmt::Display for PatchSetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The adapters on a component.
#[derive(Clone, Default)]
pub struct PatchSet {
    /// Which they are.
    pub id: PatchSetId,
    /// For each unit in visiting order what they do to it; shorter lists leave the other units as they are.
    pub patches: Vec<Option<Patch>>,
}

/// What adapters do to one unit.
#[derive(Clone)]
pub enum Patch {
    /// They are merged into the device's copy whenever it arrives there.
    Merged(Arc<dyn Merge>),
    /// They are read beside it at each use: the tensors of this unit, which is always resident.
    Unmerged(Unit),
}

/// Merges adapters into a unit's weights on the device.
pub trait Merge: Send + Sync {
    /// Memory that merging takes besides the weights, while it runs.
    fn transient_bytes(&self) -> ByteCount;

    /// Numbers of the weights that it changes.
    fn patched_elements(&self) -> u64;

    /// Enqueues the merge on `queue`, behind the copy that filled `weights`.
    ///
    /// # Errors
    /// [`DeviceError`] without memory for it, or if the device fails.
    fn merge(&self, device: &dyn Device, queue: &dyn Queue, weights: &mut Buffer) -> Result<(), DeviceError>;
}

impl PatchSet {
    /// What the set does to the unit at that place of the visiting order.
    pub fn of_unit(&self, unit_idx: usize) -> Option<&Patch> {
        self.patches.get(unit_idx).and_then(Option::as_ref)
    }

    pub(crate) fn merge_of(&self, unit_idx: usize) -> Option<&Arc<dyn Merge>> {
        match self.of_unit(unit_idx) {
            Some(Patch::Merged(merge)) => Some(merge),
            _ => None,
        }
    }

    pub(crate) fn adapter_of(&self, unit_idx: usize) -> Option<&Unit> {
        match self.of_unit(unit_idx) {
            Some(Patch::Unmerged(unit)) => Some(unit),
            _ => None,
        }
    }

    /// Bytes of the unmerged adapters on the device.
    pub fn adapter_bytes(&self) -> ByteCount {
        (0..self.patches.len()).filter_map(|unit_idx| self.adapter_of(unit_idx)).map(|unit| unit.bytes).sum()
    }
}

impl fmt::Debug for PatchSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatchSet").field("id", &self.id).finish_non_exhaustive()
    }
}
