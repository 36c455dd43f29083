use std::sync::Arc;

use plimsoll_device::Queue;
use plimsoll_residency::{Component, UnitId};

fn use_after_unload(component: Arc<Component>, queue: &Arc<dyn Queue>) -> u64 {
    let lease = component.lease(UnitId(0), queue).unwrap();
    drop(component);
    lease.buffer().size().0
}

fn main() {}
