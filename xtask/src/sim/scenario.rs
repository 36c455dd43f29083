//! What a seed builds: devices, what is known of their models, and what may go wrong. Pure data.

use std::time::Duration;

use plimsoll_device::ByteCount;
use plimsoll_residency::{Link, ManagerOptions, Policy};
use plimsoll_sim::{Faults, Seed, SimOptions};

use super::draw::Draw;

/// One device and the models that are to run on it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) device: SimOptions,
    pub(crate) manager: ManagerOptions,
    pub(crate) models: Vec<ModelShape>,
    /// All bytes of all models.
    pub(crate) total: u64,
}

/// A model: sizes and times of its units, and the sets of adapters that it may have.
#[derive(Clone, Debug)]
pub(crate) struct ModelShape {
    pub(crate) name: String,
    pub(crate) sizes: Vec<u64>,
    pub(crate) seconds: Vec<f64>,
    /// The first is empty.
    pub(crate) sets: Vec<SetShape>,
}

/// A set of adapters.
#[derive(Clone, Debug)]
pub(crate) struct SetShape {
    pub(crate) id: u64,
    /// For each unit.
    pub(crate) effects: Vec<Effect>,
}

/// What a set does to a unit.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    None,
    /// These adapters are merged into it, one after the other, each with this much scratch memory.
    Merged {
        adapters: Vec<u64>,
        transient_bytes: u64,
    },
    /// An adapter of this size is read beside it.
    Beside {
        bytes: u64,
    },
}

impl Scenario {
    /// The scenarios of a seed: one device, sometimes two.
    pub(crate) fn all(seed: u64) -> Vec<Self> {
        let mut draw = Seed::new(seed).derive(1);
        let device_count = if draw.chance(0.1) { 2 } else { 1 };
        let faults = faults(&mut draw);
        (0..device_count).map(|index| Self::new(seed, index, faults, &mut draw)).collect()
    }

    fn new(seed: u64, index: usize, faults: Faults, draw: &mut Seed) -> Self {
        let unit = draw.one_of(&[64, 64, 64, 256]);
        let model_count = draw.one_of(&[1, 2, 2, 3, 3, 4]);
        let models: Vec<_> = (0..model_count).map(|idx| ModelShape::new(idx, unit, draw)).collect();
        let total: u64 = models.iter().flat_map(|model| &model.sizes).sum();
        let seconds: f64 = models.iter().flat_map(|model| &model.seconds).sum();
        let pace = total as f64 / seconds;
        let link_bytes_per_second = pace * draw.one_of(&[0.3, 1.0, 3.0]);
        let device = SimOptions {
            index,
            memory: ByteCount(memory_bytes(total)),
            budget: Some(ByteCount((total as f64 * (0.05 + 1.2 * draw.fraction())) as u64)),
            link_bytes_per_second,
            link_latency: Duration::from_micros(draw.one_of(&[0, 1, 20])),
            allocation_unit: ByteCount(unit),
            jitter: draw.one_of(&[0.0, 0.0, 0.3, 0.9]),
            contents: true,
            trace: true,
            faults,
            seed,
            ..SimOptions::default()
        };
        let latency_seconds = device.link_latency.as_secs_f64();
        let link = Link { bytes_per_second: link_bytes_per_second, latency_seconds };
        let manager = ManagerOptions {
            policy: draw.one_of(&[Policy::Spread, Policy::Spread, Policy::LargestFirst]),
            offload_streams: draw.one_of(&[0, 1, 1, 2, 2, 3, 4]),
            min_resident_bytes: ByteCount(draw.one_of(&[0, 0, 0, total / 20, total / 3])),
            link: draw.chance(0.5).then_some(link),
            keep_idle: draw.chance(0.8),
        };
        Self { device, manager, models, total }
    }
}

/// The device's memory: what any budget of a history stays below.
pub(crate) fn memory_bytes(total: u64) -> u64 {
    (4 * total).next_multiple_of(256)
}

fn faults(draw: &mut Seed) -> Faults {
    if draw.chance(0.75) {
        return Faults::default();
    }
    let mut rate = |most: f64| if draw.chance(0.5) { most * draw.fraction() } else { 0.0 };
    Faults { allocation: rate(0.05), slow_copy: rate(0.3), short_read: rate(0.03), device_lost: rate(0.0005) }
}

impl ModelShape {
    fn new(idx: usize, unit: u64, draw: &mut Seed) -> Self {
        let count = match draw.below(4) {
            0 => draw.between(1, 4),
            1 => draw.between(4, 12),
            _ => draw.between(8, 40),
        };
        let sizes = sizes(count, unit, draw);
        let seconds = sizes.iter().map(|_| 1e-5 * (0.05 + draw.fraction()).powi(3)).collect();
        let mut model = Self { name: format!("m{idx}"), sizes, seconds, sets: Vec::new() };
        for set in 0..draw.between(1, 5) {
            let id = if set == 0 { 0 } else { 100 * (idx as u64 + 1) + set };
            model.sets.push(SetShape::new(id, &model.sizes, unit, draw));
        }
        model
    }
}

/// Sizes of units as they occur: equal, of a few kinds, with a giant, or spread over orders of magnitude.
fn sizes(count: u64, unit: u64, draw: &mut Seed) -> Vec<u64> {
    let kind = draw.below(4);
    let largest: u64 = draw.one_of(&[1, 4, 16]);
    let mut sizes: Vec<u64> = (0..count)
        .map(|_| match kind {
            0 | 1 => largest,
            2 => draw.one_of(&[1, 2, largest]),
            _ => 2_f64.powf(6.0 * draw.fraction()) as u64,
        })
        .collect();
    if kind == 1 {
        let giant = draw.below(count) as usize;
        sizes[giant] = largest * draw.between(5, 20);
    }
    sizes.iter().map(|size| size * unit).collect()
}

impl SetShape {
    fn new(id: u64, sizes: &[u64], unit: u64, draw: &mut Seed) -> Self {
        let kind = draw.below(3);
        let density = draw.one_of(&[0.1, 0.5, 1.0]);
        let effects = sizes.iter().map(|&size| {
            let effect = match (draw.chance(density), kind) {
                (false, _) => Effect::None,
                (true, 0) => Effect::merged(size, draw),
                (true, 1) => Effect::Beside { bytes: unit * draw.between(1, 4) },
                (true, _) if draw.chance(0.5) => Effect::merged(size, draw),
                (true, _) => Effect::Beside { bytes: unit * draw.between(1, 4) },
            };
            if id == 0 { Effect::None } else { effect }
        });
        Self { id, effects: effects.collect() }
    }

    /// Bytes of what is read beside the weights.
    pub(crate) fn beside_bytes(&self) -> u64 {
        self.effects.iter().map(|effect| if let Effect::Beside { bytes } = effect { *bytes } else { 0 }).sum()
    }
}

impl Effect {
    fn merged(size: u64, draw: &mut Seed) -> Self {
        let adapters = (0..draw.between(1, 4)).map(|_| 1 + draw.below(9)).collect();
        Self::Merged { adapters, transient_bytes: draw.one_of(&[0, size / 2, size]).next_multiple_of(256) }
    }
}
