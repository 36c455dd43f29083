//! The manager on the CPU device: transactions, eviction, budgets that change, holders, and what is left in the end.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Bench, Net};
use plimsoll_device::{Buffer, ByteCount, Device, DeviceError, Queue};
use plimsoll_residency::{LoadError, ManagerOptions, Merge, Patch, PatchSet, PatchSetId, Policy, UnitId};

/// Ten units of 256 bytes.
const TEN: [usize; 10] = [64; 10];

fn bench(budget: u64) -> Bench {
    Bench::new(ByteCount(budget), ManagerOptions::default())
}

#[test]
fn everything_that_fits_is_resident_and_stays_for_the_next_load() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    for _ in 0..3 {
        let loaded = bench.load(&[&net]).unwrap();
        assert_eq!(net.residents(), Some(10));
        bench.pass(&net);
        drop(loaded);
        assert_eq!(bench.used(), net.bytes(), "idle components keep what they have");
    }
    assert_eq!(net.reads().iter().sum::<usize>(), 10, "read once");
}

#[test]
fn two_components_are_planned_together_and_stream_alike() {
    let bench = bench(2560 + 512);
    let (a, b) = (bench.net("a", &TEN, 0), bench.net("b", &TEN, 100));
    let _loaded = bench.load(&[&a, &b]).unwrap();
    let residents = [a.residents().unwrap(), b.residents().unwrap()];
    assert!(residents[0].abs_diff(residents[1]) <= 1, "{residents:?}");
    assert!(residents[0] > 2);
    for _ in 0..2 {
        bench.pass(&a);
        bench.pass(&b);
    }
    assert!(bench.device.ledger().peak() <= bench.device.ledger().budget());
}

#[test]
fn a_shortfall_is_exact_and_changes_nothing() {
    let bench = bench(10_000);
    let (a, b) = (bench.net("a", &TEN, 0), bench.net("b", &TEN, 100));
    let held = bench.load_for(&[&a], ByteCount(4000), 2).unwrap();
    let before = bench.manager.report();
    let error = bench.load_for(&[&b], ByteCount(8000), 2).unwrap_err();
    let LoadError::DoesNotFit { needed, budget, activation_bytes, .. } = error else { panic!("{error}") };
    assert_eq!((budget, activation_bytes), (ByteCount(10_000), ByteCount(8000)));
    assert_eq!(needed, ByteCount(12_000) + bench.least(&a) + bench.least(&b), "with both at their smallest");
    assert_eq!(bench.manager.report().components, before.components);
    assert_eq!(bench.manager.report().holds, before.holds);
    bench.manager.set_budget(needed).unwrap();
    let nested = bench.load_for(&[&b], ByteCount(8000), 2).unwrap();
    assert_eq!([a.residents(), b.residents()], [Some(0), Some(0)]);
    bench.pass(&a);
    bench.pass(&b);
    drop((nested, held));
}

#[test]
fn a_nested_load_carries_the_outer_reservation() {
    let bench = bench(9000);
    let (unet, vae) = (bench.net("unet", &TEN, 0), bench.net("vae", &TEN, 100));
    let _outer = bench.load_for(&[&unet], ByteCount(3000), 20).unwrap();
    let _inner = bench.load_for(&[&vae], ByteCount(3000), 20).unwrap();
    let activations = bench.device.ledger().account("activations");
    let queue = bench.device.compute_queue();
    let allocate = |size| bench.device.allocate(&*queue, activations, ByteCount(size)).unwrap();
    let (_for_unet, _for_vae) = (allocate(2944), allocate(2944));
    bench.pass(&unet);
    bench.pass(&vae);
    assert!(bench.device.ledger().peak() <= ByteCount(9000));
}

#[test]
fn what_is_used_last_is_evicted_first_and_only_as_far_as_needed() {
    let bench = bench(3 * 2560 + 256);
    let nets = ["a", "b", "c", "d"].map(|name| bench.net(name, &TEN, 0));
    for net in &nets[..3] {
        drop(bench.load(&[net]).unwrap());
    }
    bench.manager.expect(&[&nets[3].component, &nets[0].component, &nets[2].component, &nets[1].component]);
    let _loaded = bench.load_for(&[&nets[3]], ByteCount(256), 2).unwrap();
    let held: Vec<u64> = bench.manager.report().components.iter().map(|component| component.resident_bytes.0).collect();
    assert_eq!(held, [2560, 0, 2560 - 256, 2560], "b is used last; c gives one unit");
}

#[test]
fn a_single_pass_streams_rather_than_evict_others() {
    let bench = bench(2560 + 1024);
    let (unet, text) = (bench.net("unet", &TEN, 0), bench.net("text", &TEN, 100));
    drop(bench.load(&[&unet]).unwrap());
    let _loaded = bench.load_for(&[&text], ByteCount::ZERO, 1).unwrap();
    assert_eq!(unet.component.report().resident_bytes, ByteCount(2560));
    assert!((1..4).contains(&text.residents().unwrap()), "{:?}", text.residents());
    bench.pass(&text);
}

#[test]
fn a_failed_load_restores_what_was_loaded_and_nothing_leaves_the_registry() {
    let bench = bench(2 * 2560);
    let (a, b, c) = (bench.net("a", &TEN, 0), bench.net("b", &TEN, 100), bench.net("c", &TEN, 200));
    let held = bench.load(&[&a]).unwrap();
    let before = a.component.plan();
    let mut failures = 0;
    for storage in &b.storages {
        storage.fail_next(1);
        if let Err(error) = bench.load(&[&c, &b]) {
            assert!(error.to_string().contains("unplugged"), "{error}");
            failures += 1;
        }
        storage.fail_next(0);
        bench.manager.unload(&b.component).unwrap();
        assert_eq!(a.component.plan(), before);
        assert_eq!(bench.manager.components().len(), 3);
        bench.pass(&a);
    }
    assert!(failures > 2, "{failures} of the failing units were to be resident");
    drop(held);
    for net in [&a, &b, &c] {
        bench.manager.unload(&net.component).unwrap();
    }
    assert_eq!(bench.used(), ByteCount::ZERO, "every component is reached by unloading");
}

#[test]
fn unloading_what_somebody_holds_is_refused_with_names() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    let loaded = bench.load(&[&net]).unwrap();
    let queue = bench.device.compute_queue();
    let lease = net.component.lease(UnitId(3), &queue).unwrap();
    let error = bench.manager.unload(&net.component).unwrap_err();
    assert_eq!(error.to_string(), "`net` can't be changed: the test, a lease of layer.3 hold it; let that end first");
    drop(loaded);
    let error = bench.manager.unload(&net.component).unwrap_err();
    assert_eq!(error.to_string(), "`net` can't be changed: a lease of layer.3 holds it; let that end first");
    drop(lease);
    bench.manager.unload(&net.component).unwrap();
    assert_eq!(bench.used(), ByteCount::ZERO);
}

#[test]
fn a_shrinking_budget_is_followed_at_once_and_a_growing_one_when_it_pays() {
    let bench = bench(10_000);
    let net = bench.net("net", &[64; 100], 0);
    bench.manager.set_budget(ByteCount(26_000)).unwrap();
    let _loaded = bench.load(&[&net]).unwrap();
    assert_eq!(net.residents(), Some(100));
    bench.manager.set_budget(ByteCount(12_800)).unwrap();
    let half = net.residents().unwrap();
    assert!(half < 50 && half > 40 && bench.used() <= ByteCount(12_800), "{half}");
    bench.manager.set_budget(ByteCount(12_800 + 256)).unwrap();
    assert_eq!(net.residents(), Some(half), "one unit is not worth a change");
    bench.manager.set_foreign(ByteCount(5000)).unwrap();
    assert!(bench.used() <= ByteCount(12_800 + 256), "what the neighbour took is ours no more");
    bench.pass(&net);
    bench.manager.set_foreign(ByteCount::ZERO).unwrap();
    assert!(net.residents().unwrap() >= half, "residency recovers");
    bench.manager.set_budget(ByteCount(26_000)).unwrap();
    assert_eq!(net.residents(), Some(100));
    bench.pass(&net);
}

#[test]
fn largest_first_shrinks_by_its_own_rule() {
    let options = ManagerOptions { policy: Policy::LargestFirst, ..ManagerOptions::default() };
    let bench = Bench::new(ByteCount(10_000), options);
    let net = bench.net("net", &[64, 100, 300, 32, 48, 200, 16, 64, 80], 0);
    let _loaded = bench.load(&[&net]).unwrap();
    let whole = net.component.plan().unwrap();
    let planner = bench.manager.planner(&net.component);
    let budget = whole.total_bytes() - ByteCount(1);
    bench.manager.set_budget(budget).unwrap();
    let shrunk = net.component.plan().unwrap();
    assert_eq!(shrunk, planner.shrink(&whole, ByteCount(1)).unwrap());
    assert_ne!(shrunk, planner.plan(budget).unwrap(), "the rule for loading keeps others");
    bench.pass(&net);
}

#[test]
fn a_budget_below_the_smallest_plan_is_told_exactly_and_obeyed_as_far_as_possible() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    let _loaded = bench.load(&[&net]).unwrap();
    let error = bench.manager.set_budget(ByteCount(200)).unwrap_err();
    let LoadError::DoesNotFit { needed, budget, .. } = error else { panic!("{error}") };
    assert_eq!((needed, budget), (bench.least(&net), ByteCount(200)));
    assert_eq!(net.residents(), None, "at rest");
    assert!(bench.used() <= ByteCount(200));
    bench.manager.set_budget(needed).unwrap();
    assert_eq!(net.residents(), Some(0));
    bench.pass(&net);
}

#[test]
fn a_lease_in_the_way_of_a_change_delays_it() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    let _loaded = bench.load(&[&net]).unwrap();
    let queue = bench.device.compute_queue();
    let first_out = bench.manager.planner(&net.component).rank().order()[0];
    let lease = net.component.lease(UnitId(first_out), &queue).unwrap();
    assert!(matches!(bench.manager.set_budget(ByteCount(2000)), Err(LoadError::Held { .. })));
    assert!(matches!(bench.manager.settle(), Err(LoadError::Held { .. })));
    drop(lease);
    bench.manager.settle().unwrap();
    assert!(bench.used() <= ByteCount(2000));
    bench.pass(&net);
}

#[test]
fn stepping_down_frees_at_least_what_is_missing_until_nothing_is_left() {
    let bench = bench(10_000);
    let (net, idle) = (bench.net("net", &TEN, 0), bench.net("idle", &TEN, 0));
    drop(bench.load(&[&idle]).unwrap());
    let _loaded = bench.load(&[&net]).unwrap();
    bench.manager.step_down(ByteCount(1)).unwrap();
    assert_eq!(idle.component.report().resident_bytes, ByteCount(2560 - 256), "what nobody uses goes first");
    bench.manager.step_down(ByteCount(2560 - 256 + 512)).unwrap();
    let mut used = bench.used();
    assert!(used <= ByteCount(2560 - 256), "{used}");
    while bench.manager.step_down(ByteCount(1)).is_ok() {
        assert!(bench.used() < used);
        used = bench.used();
        bench.pass(&net);
    }
    assert_eq!(net.component.plan().unwrap().total_bytes(), bench.least(&net));
}

#[test]
fn min_resident_bytes_stay_while_loaded_and_go_for_others() {
    let options = ManagerOptions { min_resident_bytes: ByteCount(1024), ..ManagerOptions::default() };
    let bench = Bench::new(ByteCount(10_000), options);
    let (net, other) = (bench.net("net", &TEN, 0), bench.net("other", &TEN, 0));
    let loaded = bench.load(&[&net]).unwrap();
    let error = bench.manager.set_budget(ByteCount(1)).unwrap_err();
    let LoadError::DoesNotFit { needed, .. } = error else { panic!("{error}") };
    assert_eq!(needed, ByteCount(1024 + 256 + 256), "four units, a ring of one, staging");
    bench.manager.set_budget(needed).unwrap();
    assert_eq!(net.residents(), Some(4));
    assert!(bench.manager.step_down(ByteCount(1)).is_err());
    drop(loaded);
    bench.manager.set_budget(ByteCount(2560 + 256)).unwrap();
    let _loaded = bench.load(&[&other]).unwrap();
    assert_eq!(net.component.report().resident_bytes, ByteCount::ZERO);
}

/// Adds one to the first number, and counts how often.
struct AddOne(AtomicUsize);

impl Merge for AddOne {
    fn transient_bytes(&self) -> ByteCount {
        ByteCount(64)
    }

    fn patched_elements(&self) -> u64 {
        1
    }

    fn merge(&self, _device: &dyn Device, queue: &dyn Queue, weights: &mut Buffer) -> Result<(), DeviceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut number = [0; 4];
        queue.read(weights, 0, &mut number)?;
        queue.write(&(f32::from_le_bytes(number) + 1.0).to_le_bytes(), weights)
    }
}

fn merged(id: u64, units: &[usize]) -> Arc<PatchSet> {
    let mut patches = vec![None; TEN.len()];
    for &unit in units {
        patches[unit] = Some(Patch::Merged(Arc::new(AddOne(AtomicUsize::new(0)))));
    }
    Arc::new(PatchSet { id: PatchSetId(id), patches })
}

/// The first number of each unit, less what it is without adapters.
fn merges(bench: &Bench, net: &Net) -> Vec<f32> {
    (0..TEN.len()).map(|unit| bench.visit(net, unit).unwrap()[0] - unit as f32).collect()
}

#[test]
fn the_upscale_flow_never_runs_with_the_old_adapters() {
    for budget in [2560 + 64, 2000] {
        let bench = bench(budget);
        let net = bench.net("net", &TEN, 0);
        let (first, second) = (merged(1, &[0, 3]), merged(2, &[3, 4]));
        for _ in 0..3 {
            let loaded = bench.load_patched(&[&net], &first, ByteCount::ZERO, 20).unwrap();
            assert_eq!(merges(&bench, &net), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
            drop(loaded);
            // The same base with other adapters, and a larger latent, for which residents must go.
            let loaded = bench.load_patched(&[&net], &second, ByteCount(budget / 2), 20).unwrap();
            assert_eq!(merges(&bench, &net), [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
            drop(loaded);
        }
        let loaded = bench.load(&[&net]).unwrap();
        assert_eq!(merges(&bench, &net), [0.0; 10]);
        drop(loaded);
    }
}

#[test]
fn a_clone_with_the_same_adapters_shares_residents_and_other_units_stay() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    drop(bench.load_patched(&[&net], &merged(1, &[0]), ByteCount::ZERO, 20).unwrap());
    drop(bench.load_patched(&[&net], &merged(1, &[0]), ByteCount::ZERO, 20).unwrap());
    assert_eq!(net.reads(), [1; 10]);
    drop(bench.load_patched(&[&net], &merged(2, &[1]), ByteCount::ZERO, 20).unwrap());
    assert_eq!(net.reads(), [2, 2, 1, 1, 1, 1, 1, 1, 1, 1], "only what was or is merged is copied again");
}

#[test]
fn a_failed_load_puts_the_adapters_back() {
    let bench = bench(10_000);
    let net = bench.net("net", &TEN, 0);
    drop(bench.load_patched(&[&net], &merged(1, &[0]), ByteCount::ZERO, 20).unwrap());
    net.storages[5].fail_next(1);
    bench.manager.unload(&net.component).unwrap();
    assert!(bench.load_patched(&[&net], &merged(2, &[5]), ByteCount::ZERO, 20).is_err());
    assert_eq!(net.component.patches(), PatchSetId(1));
}

#[test]
fn unmerged_adapters_are_read_beside_untouched_weights_resident_or_streamed() {
    for budget in [10_000, 1500] {
        let bench = bench(budget);
        let net = bench.net("net", &TEN, 0);
        let mut patches = vec![None; TEN.len()];
        patches[2] = Some(Patch::Unmerged(bench.adapter(7.0)));
        let patches = Arc::new(PatchSet { id: PatchSetId(9), patches });
        let _loaded = bench.load_patched(&[&net], &patches, ByteCount::ZERO, 20).unwrap();
        bench.pass(&net);
        let queue = bench.device.compute_queue();
        let lease = net.component.lease(UnitId(2), &queue).unwrap();
        let mut number = [0; 4];
        queue.read(lease.adapter().unwrap(), 0, &mut number).unwrap();
        assert_eq!(f32::from_le_bytes(number), 7.0);
        assert_eq!(net.component.report().adapter_bytes, ByteCount(64));
        assert!(bench.used() <= ByteCount(budget));
    }
}

#[test]
fn the_report_sums_to_the_ledger() {
    let bench = bench(5000);
    let (a, b) = (bench.net("a", &TEN, 0), bench.net("b", &[200, 10, 10], 0));
    let _loaded = bench.load_for(&[&a, &b], ByteCount(500), 2).unwrap();
    bench.pass(&a);
    let report = bench.manager.report();
    let rows: ByteCount = report.memory.accounts.iter().map(|row| row.bytes).sum();
    let components: ByteCount =
        report.components.iter().map(|part| part.resident_bytes + part.ring_bytes + part.adapter_bytes).sum();
    assert_eq!((rows, components), (report.memory.used_bytes, report.memory.used_bytes));
    assert_eq!(report.holds[0].reserved_bytes, ByteCount(500));
}

#[test]
fn a_thousand_loads_switches_and_unloads_leave_nothing_behind() {
    let bench = Bench::new(ByteCount(4000), ManagerOptions { offload_streams: 1, ..ManagerOptions::default() });
    let nets = [bench.net("a", &TEN, 0), bench.net("b", &[100, 3, 50], 50)];
    let sets = [Arc::default(), merged(1, &[0]), merged(2, &[1])];
    let mut after_first = None;
    for round in 0..1000 {
        let loaded = bench.load_patched(&[&nets[round % 2]], &sets[round % 3], ByteCount(300), 2).unwrap();
        bench.visit(&nets[round % 2], round % 3).unwrap();
        drop(loaded);
        if round % 6 == 5 {
            nets.iter().for_each(|net| bench.manager.unload(&net.component).unwrap());
            let report = bench.manager.report();
            let state = (report.memory.used_bytes, report.memory.accounts.len(), report.components, threads());
            assert_eq!(*after_first.get_or_insert_with(|| state.clone()), state, "after {round} rounds");
        }
    }
    let objects: Vec<usize> = nets.iter().map(|net| Arc::strong_count(&net.component)).collect();
    assert_eq!(objects, [1, 1]);
}

/// Threads of this process whose name is an offload queue's; they are this test's own.
fn threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("a.offload") || name.starts_with("b.offload")).count()
}
