use std::sync::Arc;

use plimsoll_device::{Buffer, Queue};
use plimsoll_residency::{Component, UnitId};

fn weights<'a>(component: &'a Component, queue: &'a Arc<dyn Queue>) -> &'a Buffer {
    let lease = component.lease(UnitId(0), queue).unwrap();
    lease.buffer()
}

fn main() {}
