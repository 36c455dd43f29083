//! A component with its model, loaded for one phase at a time.
//!
//! How much memory a phase's activations take is not estimated but *rehearsed*: the same code runs once on a stand-in
//! device that books every allocation and computes nothing, which takes about a millisecond. So the plan is exact, and
//! a request that can't be done under the budget is refused before anything is loaded. The rehearsal also tells how much
//! each unit computes, which is what the first rank is made of. What a run really took at once is measured, and the next
//! one of that shape reserves no less, should libraries or a device take more than was rehearsed.

use std::sync::Arc;

use plimsoll_device::{ByteCount, DType};
use plimsoll_nn::{BuildError, Builder, Run};
use plimsoll_residency::{
    Component, LoadError, LoadRequest, Manager, ManagerOptions, PatchSet, PeakKey, Policy, Wanted,
};
use plimsoll_tensor::Compute;
use plimsoll_weights::TensorIndex;

use crate::PipelineError;

/// The account of all tensors that ops produce.
const ACTIVATIONS: &str = "activations";

/// A model's layers, and their weights as a component that the manager loads.
pub(crate) struct PhaseComponent<M> {
    dtype: DType,
    pub(crate) model: M,
    pub(crate) component: Arc<Component>,
    manager: Arc<Manager>,
}

/// What a phase takes besides its component.
pub(crate) struct PhasePlan {
    key: PeakKey,
    activation_bytes: ByteCount,
    passes: usize,
}

impl<M> PhaseComponent<M> {
    /// Builds the model `name` out of `tensors`, as a placeholder.
    ///
    /// # Errors
    /// [`PipelineError::Build`] if a tensor is missing or wrong, or one is left over that the model does not ignore.
    pub(crate) fn build(
        name: &str,
        tensors: &TensorIndex,
        manager: &Arc<Manager>,
        dtype: DType,
        ignores: fn(&str) -> bool,
        build: impl FnOnce(&Builder<'_>) -> Result<M, BuildError>,
    ) -> Result<Self, PipelineError> {
        let builder = Builder::new(tensors, &**manager.device(), dtype);
        let model = build(&builder)?;
        let component = manager.add(name, builder.finish(ignores)?);
        Ok(Self { dtype, model, component, manager: manager.clone() })
    }

    /// Rehearses `pass`, which is to be run `passes` times on something of that shape, and checks that the component fits
    /// around it.
    ///
    /// # Errors
    /// [`PipelineError::OverBudget`] when not even the smallest plan fits; whatever the rehearsal fails with.
    pub(crate) fn plan(
        &self,
        shape: &[usize],
        passes: usize,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<(), PipelineError>,
    ) -> Result<PhasePlan, PipelineError> {
        let rehearsed = self.rehearse(pass)?;
        let key = self.key(shape);
        let activation_bytes = self.manager.peaks().reserve(&key, rehearsed);
        let phase = PhasePlan { key, activation_bytes, passes };
        self.with_request(&phase, |request| self.manager.check(request)).map_err(|error| self.refused(error))?;
        Ok(phase)
    }

    /// Loads the component, runs `pass`, and lets the component go.
    pub(crate) fn run<R>(
        &self,
        phase: &PhasePlan,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<R, PipelineError>,
    ) -> Result<R, PipelineError> {
        let load = |request: &LoadRequest<'_>| self.manager.load(request);
        let _loaded = self.with_request(phase, load).map_err(|error| self.refused(error))?;
        let cx = Compute::new(self.manager.device().clone(), ACTIVATIONS);
        let ledger = self.manager.device().ledger();
        ledger.reset_arena_peak();
        let result = pass(&self.model, &Run { cx: &cx, weights: &self.component });
        self.manager.peaks().learn(&phase.key, ledger.arena_peak());
        result
    }

    fn key(&self, shape: &[usize]) -> PeakKey {
        let device = self.manager.device();
        PeakKey {
            component: self.component.fingerprint(),
            shape: shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
            dtype: self.dtype.to_string(),
            device: format!("{}, {}", device.id(), device.kernel_set()),
        }
    }

    fn with_request<R>(&self, phase: &PhasePlan, act: impl FnOnce(&LoadRequest<'_>) -> R) -> R {
        let patches = Arc::new(PatchSet::default());
        let wanted = [Wanted { component: &self.component, patches: &patches, passes: phase.passes }];
        let holder = self.component.name();
        act(&LoadRequest { holder, wanted: &wanted, activation_bytes: phase.activation_bytes })
    }

    fn refused(&self, error: LoadError) -> PipelineError {
        match error {
            LoadError::DoesNotFit { needed, budget, activation_bytes, .. } => PipelineError::OverBudget {
                component: self.component.name().to_owned(),
                needed,
                budget,
                activation_bytes,
            },
            other => other.into(),
        }
    }

    /// The most that `pass` has allocated at once for activations and scratch. What the units compute meanwhile becomes
    /// the component's estimate.
    pub(crate) fn rehearse(
        &self,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<(), PipelineError>,
    ) -> Result<ByteCount, PipelineError> {
        let device = self.manager.device().rehearsal();
        // Everything is resident in a rehearsal, so the policy decides nothing; this one's planner costs nothing.
        let options = ManagerOptions { policy: Policy::LargestFirst, ..ManagerOptions::default() };
        let manager = Manager::new(&device, options);
        let component = manager.add(self.component.name(), self.component.units().to_vec());
        let patches = Arc::new(PatchSet::default());
        let wanted = [Wanted { component: &component, patches: &patches, passes: 1 }];
        let request = LoadRequest { holder: "rehearsal", wanted: &wanted, activation_bytes: ByteCount::ZERO };
        let _loaded = manager.load(&request)?;
        let cx = Compute::new(device.clone(), ACTIVATIONS);
        pass(&self.model, &Run { cx: &cx, weights: &component })?;
        self.component.estimate(component.compute_seconds());
        Ok(device.ledger().arena_peak())
    }
}

/// Runs `work` until the device has the memory for it: whenever it hasn't, the components in use give up some of theirs,
/// and `work` is done again. What it reads must not be changed by it.
///
/// # Errors
/// What `work` fails with, for want of memory only when the smallest plans are in force.
pub(crate) fn with_room<R>(
    manager: &Manager,
    mut work: impl FnMut() -> Result<R, PipelineError>,
) -> Result<R, PipelineError> {
    loop {
        let error = match work() {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let Some(missing) = error.missing_bytes() else { return Err(error) };
        if manager.step_down(missing).is_err() {
            return Err(error);
        }
    }
}
