//! The same work with everything resident, on a device of its own: what every other run must compute.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_device::{ByteCount, Device};
use plimsoll_residency::{LoadRequest, Manager, ManagerOptions, UnitId, Wanted};
use plimsoll_sim::{Content, Faults, SimDevice, SimOptions};

use super::model::Model;
use super::scenario::Scenario;

/// A device without a line.
pub(crate) struct Reference {
    device: Arc<SimDevice>,
    manager: Arc<Manager>,
    models: Vec<Model>,
    /// By models and their sets of adapters.
    outputs: BTreeMap<Vec<(usize, usize)>, Content>,
}

impl Reference {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let unlimited = SimOptions {
            memory: ByteCount::MAX,
            budget: None,
            jitter: 0.0,
            trace: false,
            faults: Faults::default(),
            ..scenario.device.clone()
        };
        let device = Arc::new(SimDevice::new(&unlimited));
        let as_device: Arc<dyn Device> = device.clone();
        let manager = Manager::new(&as_device, ManagerOptions::default());
        let models = scenario.models.iter().map(|shape| Model::new(shape, &device, &manager)).collect();
        Self { device, manager, models, outputs: BTreeMap::new() }
    }

    /// What a step over these models, with these adapters, computes.
    pub(crate) fn step(&mut self, members: &[(usize, usize)]) -> Content {
        if let Some(output) = self.outputs.get(members) {
            return output.clone();
        }
        let output = self.compute(members);
        self.outputs.insert(members.to_vec(), output.clone());
        output
    }

    fn compute(&self, members: &[(usize, usize)]) -> Content {
        let sets: Vec<_> = members.iter().map(|&(model, set)| self.models[model].patch_set(set)).collect();
        let components = members.iter().map(|&(model, _)| &self.models[model].component);
        let wanted = components.zip(&sets).map(|(component, patches)| Wanted { component, patches, passes: 2 });
        let wanted: Vec<_> = wanted.collect();
        let request = LoadRequest { holder: "the reference", wanted: &wanted, activation_bytes: ByteCount::ZERO };
        let _loaded = self.manager.load(&request).expect("without a line everything can be loaded");
        let queue = self.device.compute_queue();
        let mut state = Content::default();
        for &(model, _) in members {
            let component = &self.models[model].component;
            assert!(component.plan().is_some_and(|plan| plan.resident.iter().all(|resident| *resident)));
            for (idx, unit) in component.units().iter().enumerate() {
                let lease = component.lease(UnitId(idx), &queue).expect("a resident unit can be leased");
                let reads: Vec<_> = [Some(lease.buffer()), lease.adapter()].into_iter().flatten().collect();
                let seen = self.device.compute(&*queue, unit.name(), 0.0, &reads, &mut []);
                let mut inputs = vec![state];
                inputs.extend(seen.expect("a device without faults computes"));
                state = Content::of_output(unit.name(), &inputs);
            }
        }
        assert_eq!(self.device.violations(), []);
        state
    }
}
