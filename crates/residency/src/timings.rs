//! How long units compute, measured: what the next rank is made of.
//!
//! The time of a unit runs from the moment its weights are ready on the compute queue to the moment the next unit is
//! asked for there, so that operations without weights count for the unit before them. The last unit of a pass ends with
//! its lease: what happens until the next pass is not its own.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_device::{ByteCount, Event};
use serde::Serialize;

use crate::UnitId;

/// How much a new measurement counts.
const WEIGHT: f64 = 0.25;
/// Measurements that are kept until their events have passed; older ones are given up.
const PENDING_MAX: usize = 4096;

/// Measured times of a component's units, as moving averages.
pub(crate) struct Timings {
    seconds: Vec<Option<f64>>,
    running: Option<Running>,
    pending: VecDeque<Pending>,
    traffic: Traffic,
}

/// What a component has copied and waited for since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Copies of streamed units.
    pub copy_count: u64,
    /// Bytes of streamed units that were copied in and asked for.
    pub streamed_bytes: ByteCount,
    /// Bytes of residents that were copied in.
    pub loaded_bytes: ByteCount,
    /// Seconds that the compute queue waited for weights.
    pub stall_seconds: f64,
}

struct Running {
    unit: UnitId,
    ready: Arc<dyn Event>,
}

struct Pending {
    /// Whose compute time it is; none for a wait for weights.
    unit: Option<UnitId>,
    begun: Arc<dyn Event>,
    ended: Arc<dyn Event>,
}

impl Timings {
    pub(crate) fn new(unit_count: usize) -> Self {
        Self { seconds: vec![None; unit_count], running: None, pending: VecDeque::new(), traffic: Traffic::default() }
    }

    /// A unit was asked for at `asked`, and its weights are ready at `ready`.
    pub(crate) fn begin(&mut self, unit: UnitId, asked: Arc<dyn Event>, ready: Arc<dyn Event>) {
        if let Some(running) = self.running.take() {
            self.push(Some(running.unit), running.ready, asked.clone());
        }
        if !Arc::ptr_eq(&asked, &ready) {
            self.push(None, asked, ready.clone());
        }
        self.running = Some(Running { unit, ready });
        self.settle();
    }

    /// The lease of `unit` ended; for the last unit of a pass that ends its time.
    pub(crate) fn end_pass(&mut self, unit: UnitId, ended: Arc<dyn Event>) {
        if let Some(running) = self.running.take_if(|running| running.unit == unit) {
            self.push(Some(unit), running.ready, ended);
        }
    }

    /// What is running is not to be counted: the pass was broken off.
    pub(crate) fn interrupt(&mut self) {
        self.running = None;
    }

    pub(crate) fn count_copy(&mut self, size: ByteCount) {
        self.traffic.copy_count += 1;
        self.traffic.streamed_bytes += size;
    }

    pub(crate) fn count_load(&mut self, size: ByteCount) {
        self.traffic.loaded_bytes += size;
    }

    pub(crate) fn traffic(&mut self) -> Traffic {
        self.settle();
        self.traffic
    }

    /// Average seconds of each unit; none for one that was never measured.
    pub(crate) fn seconds(&mut self) -> &[Option<f64>] {
        self.settle();
        &self.seconds
    }

    fn push(&mut self, unit: Option<UnitId>, begun: Arc<dyn Event>, ended: Arc<dyn Event>) {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending { unit, begun, ended });
    }

    /// Takes in what the device has got to.
    fn settle(&mut self) {
        while let Some(pending) = self.pending.front() {
            let (Some(begun), Some(ended)) = (pending.begun.passed_at(), pending.ended.passed_at()) else { return };
            let seconds = ended.saturating_sub(begun).as_secs_f64();
            match pending.unit {
                None => self.traffic.stall_seconds += seconds,
                Some(unit) => {
                    let average = &mut self.seconds[unit.0];
                    *average = Some(average.map_or(seconds, |average| average + WEIGHT * (seconds - average)));
                }
            }
            self.pending.pop_front();
        }
    }
}

/// Whether `measured` differs so much from what a rank was made of that a new one is worth making: by more than a tenth
/// of the total, added up over all units.
pub(crate) fn has_drifted(planned: &[f64], measured: &[f64]) -> bool {
    let total: f64 = planned.iter().sum();
    let scale = measured.iter().sum::<f64>() / total;
    let drift: f64 = planned.iter().zip(measured).map(|(planned, measured)| (planned * scale - measured).abs()).sum();
    drift > 0.1 * total * scale
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_device::DeviceError;

    use super::*;

    struct At(u64);

    impl Event for At {
        fn is_complete(&self) -> bool {
            true
        }

        fn synchronize(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn passed_at(&self) -> Option<Duration> {
            Some(Duration::from_millis(self.0))
        }
    }

    fn at(milliseconds: u64) -> Arc<dyn Event> {
        Arc::new(At(milliseconds))
    }

    #[test]
    fn a_unit_computes_until_the_next_is_asked_for_and_the_last_until_its_lease_ends() {
        let mut timings = Timings::new(3);
        timings.begin(UnitId(0), at(0), at(2));
        timings.begin(UnitId(1), at(12), at(13));
        let resident = at(20);
        timings.begin(UnitId(2), resident.clone(), resident);
        timings.end_pass(UnitId(2), at(25));
        timings.begin(UnitId(0), at(1000), at(1000));
        assert_eq!(timings.seconds(), [Some(0.010), Some(0.007), Some(0.005)]);
        assert!((timings.traffic().stall_seconds - 0.003).abs() < 1e-9);
    }

    #[test]
    fn a_new_measurement_moves_the_average_by_a_quarter() {
        let mut timings = Timings::new(1);
        for milliseconds in [8, 16] {
            let start = at(0);
            timings.begin(UnitId(0), start.clone(), start);
            timings.end_pass(UnitId(0), at(milliseconds));
        }
        assert_eq!(timings.seconds(), [Some(0.010)]);
    }

    #[test]
    fn another_pace_is_no_drift_and_another_shape_is() {
        assert!(!has_drifted(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.1]));
        assert!(has_drifted(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]));
    }
}
