use std::sync::Arc;

use plimsoll_device::Queue;
use plimsoll_residency::{Component, UnitId};

fn copied(component: &Component, queue: &Arc<dyn Queue>) {
    let lease = component.lease(UnitId(0), queue).unwrap();
    let again = lease.clone();
    drop((lease, again));
}

fn main() {}
