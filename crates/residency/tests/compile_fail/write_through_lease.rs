use std::sync::Arc;

use plimsoll_device::Queue;
use plimsoll_residency::{Component, UnitId};

fn written(component: &Component, queue: &Arc<dyn Queue>) {
    let mut lease = component.lease(UnitId(0), queue).unwrap();
    queue.write(&[0], lease.buffer_mut()).unwrap();
}

fn main() {}
