//! The line holds, and the picture does not depend on where it is.

mod common;

use std::path::Path;

use common::{device, opened};
use plimsoll_device::{ByteCount, Device};
use plimsoll_pipeline::{Generated, PipelineError, Request, Silent};
use plimsoll_sampling::{Sampler, SigmaSchedule};
use plimsoll_testkit::{asset, fixture};

fn request() -> Request {
    Request {
        prompt: "red heart".to_owned(),
        negative: String::new(),
        steps: 4,
        guidance: 4.0,
        sampler: Sampler::Dpmpp2mSde,
        schedule: SigmaSchedule::Karras,
        seed: 5,
        width: 64,
        height: 96,
        count: 2,
        image: None,
    }
}

/// Draws on a device of its own; the device's peak, and the picture or why there is none.
fn draw(folder: &Path, budget: ByteCount, streams: usize) -> (ByteCount, Result<Generated, PipelineError>) {
    let device = device(budget);
    let pipeline = opened(folder, device.clone(), streams);
    let drawn = pipeline.generate(&request(), None, &mut Silent);
    assert_eq!(device.ledger().used(), ByteCount::ZERO, "a run leaves nothing on the device");
    (device.ledger().peak(), drawn)
}

/// The smallest budget that a run is not refused with: what the first refusal asks for.
fn smallest_budget(folder: &Path, streams: usize) -> ByteCount {
    let (peak, refused) = draw(folder, ByteCount(1), streams);
    assert_eq!(peak, ByteCount::ZERO, "a refused run loads nothing");
    match refused {
        Err(PipelineError::OverBudget { needed, .. }) => needed,
        other => panic!("at 1 byte: {other:?}"),
    }
}

#[track_caller]
fn check_all_budgets(folder: &Path) {
    let (unlimited_peak, reference) = draw(folder, ByteCount::MAX, 0);
    let reference = reference.unwrap();
    for streams in [0, 1, 3] {
        let smallest = smallest_budget(folder, streams);
        assert!(smallest < unlimited_peak, "nothing is streamed at {smallest} of {unlimited_peak}");
        let (_, refused) = draw(folder, ByteCount(smallest.0 - 1), streams);
        match refused {
            Err(PipelineError::OverBudget { needed, .. }) => assert_eq!(needed, smallest, "the shortfall is 1 byte"),
            other => panic!("one byte below the smallest budget: {other:?}"),
        }
        let span = unlimited_peak.0 - smallest.0;
        for part in [0, 1, 10, 50, 90, 99, 100] {
            let budget = ByteCount(smallest.0 + span * part / 100);
            let (peak, drawn) = draw(folder, budget, streams);
            let drawn = drawn.unwrap_or_else(|error| panic!("{streams} streams at {budget}: {error}"));
            assert!(peak <= budget, "{streams} streams: the peak {peak} crosses the line at {budget}");
            assert!(drawn.images == reference.images, "{streams} streams at {budget}: another picture");
        }
    }
}

#[test]
fn the_demo_model_draws_the_same_bits_at_any_budget() {
    check_all_budgets(&asset("emoji64"));
}

#[test]
fn a_sharded_xl_model_draws_the_same_bits_at_any_budget() {
    check_all_budgets(&fixture("models/sdxl"));
}

#[test]
fn the_rows_sum_to_the_total_in_every_phase() {
    struct Sums(Vec<String>);
    impl plimsoll_pipeline::Progress for Sums {
        fn begin(&mut self, phase: plimsoll_pipeline::Phase, _step_count: usize) {
            self.0.push(phase.to_string());
        }
        fn step(&mut self) -> bool {
            true
        }
        fn end(&mut self, memory: &plimsoll_device::MemoryReport) {
            let sum: ByteCount = memory.accounts.iter().map(|row| row.bytes).sum();
            assert_eq!(sum, memory.used_bytes);
            assert!(memory.used_bytes > ByteCount::ZERO, "the report is made while the component is loaded");
        }
    }
    let mut sums = Sums(Vec::new());
    let pipeline = opened(&asset("emoji64"), device(ByteCount::MAX), 0);
    pipeline.generate(&request(), None, &mut sums).unwrap();
    assert_eq!(sums.0, ["encode_text", "denoise", "decode"]);
}

#[test]
fn a_cancelled_run_leaves_nothing_behind() {
    struct StopAt(usize);
    impl plimsoll_pipeline::Progress for StopAt {
        fn begin(&mut self, _phase: plimsoll_pipeline::Phase, _step_count: usize) {}
        fn step(&mut self) -> bool {
            self.0 -= 1;
            self.0 > 0
        }
        fn end(&mut self, _memory: &plimsoll_device::MemoryReport) {}
    }
    for stop_at in [1, 3, 9, 10] {
        let device = device(ByteCount::MAX);
        let pipeline = opened(&asset("emoji64"), device.clone(), 2);
        let error = pipeline.generate(&request(), None, &mut StopAt(stop_at)).unwrap_err();
        assert!(matches!(error, PipelineError::Cancelled), "{error}");
        assert_eq!(device.ledger().used(), ByteCount::ZERO);
    }
}
