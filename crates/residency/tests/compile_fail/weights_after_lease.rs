use std::sync::Arc;

use plimsoll_device::{Buffer, Queue};
use plimsoll_residency::{Component, UnitId};

fn read_after_drop(component: &Component, queue: &Arc<dyn Queue>) -> u64 {
    let lease = component.lease(UnitId(0), queue).unwrap();
    let weights: &Buffer = lease.buffer();
    drop(lease);
    weights.size().0
}

fn main() {}
