use std::sync::Arc;

use plimsoll_device::Queue;
use plimsoll_residency::{Component, UnitId};

fn read_after_drop(component: &Component, queue: &Arc<dyn Queue>) -> u64 {
    let lease = component.lease(UnitId(0), queue).unwrap();
    let adapter = lease.adapter().unwrap();
    drop(lease);
    adapter.size().0
}

fn main() {}
