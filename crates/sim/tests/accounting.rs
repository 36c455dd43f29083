//! After every event of random programs, whatever fails, the ledger, the allocator and the program count the same bytes.

mod common;

use std::ops::Range;
use std::sync::Arc;

use common::{hollow_unit, slow_device};
use plimsoll_device::{AllocError, Buffer, ByteCount, Device, FOREIGN, Filling, Queue, Region};
use plimsoll_sim::{Fault, Faults, SimDevice, SimOptions};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Region(u64),
    Take(usize, u64, u64),
    Upload(usize),
    Acquire(usize),
    DropBuffer(usize),
    DropFilling(usize),
    DropRegion(usize),
    Foreign(u64),
    Budget(u64),
    Fail(usize),
    Synchronize,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u64..5000).prop_map(Step::Allocate),
        2 => (0_u64..100).prop_map(|units| Step::Region(64 * units)),
        4 => (0_usize..8, 0_u64..100, 0_u64..50).prop_map(|(idx, start, len)| Step::Take(idx, 64 * start, 64 * len)),
        4 => (0_usize..64).prop_map(Step::Upload),
        3 => (0_usize..64).prop_map(Step::Acquire),
        4 => (0_usize..64).prop_map(Step::DropBuffer),
        2 => (0_usize..64).prop_map(Step::DropFilling),
        1 => (0_usize..8).prop_map(Step::DropRegion),
        1 => (0_u64..30_000).prop_map(Step::Foreign),
        1 => (0_u64..60_000).prop_map(Step::Budget),
        1 => (0_usize..3).prop_map(Step::Fail),
        1 => Just(Step::Synchronize),
    ]
}

/// The program's own count of what it holds: an allocation counts while it or a part of it lives.
#[derive(Default)]
struct Holdings {
    buffers: Vec<(Buffer, Option<Arc<()>>)>,
    fillings: Vec<(Filling, Option<Arc<()>>, u64)>,
    regions: Vec<(Arc<dyn Region>, Arc<()>)>,
    /// Size of each region and whether anything of it lives.
    region_sizes: Vec<(u64, std::sync::Weak<()>)>,
}

impl Holdings {
    fn bytes(&self) -> ByteCount {
        let buffers = self.buffers.iter().filter(|(_, region)| region.is_none()).map(|(buffer, _)| buffer.size().0);
        let fillings = self.fillings.iter().filter(|(_, region, _)| region.is_none()).map(|(_, _, size)| *size);
        let regions = self.region_sizes.iter().filter(|(_, alive)| alive.strong_count() > 0).map(|(size, _)| *size);
        ByteCount(buffers.chain(fillings).chain(regions).sum())
    }
}

fn pick<T>(items: &mut Vec<T>, idx: usize) -> Option<T> {
    (!items.is_empty()).then(|| items.swap_remove(idx % items.len()))
}

fn run(steps: &[Step], seed: u64) {
    let faults = Faults { allocation: 0.05, slow_copy: 0.05, short_read: 0.1, device_lost: 0.005 };
    let options = SimOptions { memory: ByteCount(40_000), faults, seed, jitter: 0.5, ..slow_device() };
    let device = SimDevice::new(&options);
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let mut holdings = Holdings::default();
    for step in steps {
        take_step(&device, &compute, &copies, step, &mut holdings);
        let report = device.ledger().report();
        let foreign = report.accounts.iter().find(|row| row.name == FOREIGN).map_or(ByteCount::ZERO, |row| row.bytes);
        assert_eq!(device.live_bytes(), holdings.bytes(), "after {step:?}");
        assert_eq!(report.used_bytes, device.live_bytes() + foreign, "after {step:?}");
        assert_no_address_twice(&device, &holdings);
    }
    drop(holdings);
    device.neighbour_takes(ByteCount::ZERO);
    assert_eq!((device.live_bytes(), device.ledger().used()), (ByteCount::ZERO, ByteCount::ZERO));
    // The trace tells the same story.
    let changes = device.take_trace().memory;
    assert_eq!(changes.iter().map(|change| change.bytes).sum::<i64>(), 0);
}

fn take_step(
    device: &SimDevice,
    compute: &Arc<dyn Queue>,
    copies: &Arc<dyn Queue>,
    step: &Step,
    holdings: &mut Holdings,
) {
    let account = device.ledger().account("test");
    match *step {
        Step::Allocate(size) => {
            let available = device.ledger().available();
            match device.allocate(&**compute, account, ByteCount(size)) {
                Ok(buffer) => holdings.buffers.push((buffer, None)),
                Err(AllocError::OverBudget { needed, .. }) => assert!(needed > available),
                Err(AllocError::Exhausted { needed, .. }) => assert!(needed <= available),
            }
        }
        Step::Region(size) => {
            if let Ok(region) = device.region(&**compute, account, ByteCount(size)) {
                let alive = Arc::new(());
                holdings.region_sizes.push((size, Arc::downgrade(&alive)));
                holdings.regions.push((region, alive));
            }
        }
        Step::Take(idx, start, len) if !holdings.regions.is_empty() => {
            let (region, alive) = &holdings.regions[idx % holdings.regions.len()];
            if start + len <= region.size().0
                && let Some(buffer) = region.clone().take(start..start + len)
            {
                holdings.buffers.push((buffer, Some(alive.clone())));
            }
        }
        Step::Upload(idx) => {
            if let Some((buffer, region)) = pick(&mut holdings.buffers, idx) {
                let size = buffer.size().0;
                let filling = copies.upload(&hollow_unit("unit", size as usize), buffer);
                holdings.fillings.push((filling, region, size));
            }
        }
        Step::Acquire(idx) => {
            if let Some((filling, region, _)) = pick(&mut holdings.fillings, idx)
                && let Ok(buffer) = filling.acquire(&**compute)
            {
                holdings.buffers.push((buffer, region));
            }
        }
        Step::DropBuffer(idx) => drop(pick(&mut holdings.buffers, idx)),
        Step::DropFilling(idx) => drop(pick(&mut holdings.fillings, idx)),
        Step::DropRegion(idx) => drop(pick(&mut holdings.regions, idx)),
        Step::Foreign(size) => device.neighbour_takes(ByteCount(size)),
        Step::Budget(size) => device.ledger().set_budget(ByteCount(size)),
        Step::Fail(idx) => device.fail_next(Fault::ALL[idx]),
        Step::Synchronize => drop(copies.synchronize()),
        Step::Take(..) => {}
    }
}

/// No two buffers share an address.
fn assert_no_address_twice(device: &SimDevice, holdings: &Holdings) {
    let mut addresses: Vec<Range<u64>> =
        holdings.buffers.iter().flat_map(|(buffer, _)| device.addresses(buffer)).collect();
    addresses.sort_by_key(|addresses| addresses.start);
    assert!(addresses.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert!(addresses.last().is_none_or(|last| last.end <= 40_000));
}

proptest! {
    #[test]
    fn ledger_allocator_and_program_count_the_same(steps in prop::collection::vec(step(), 1..200), seed: u64) {
        run(&steps, seed);
    }
}
