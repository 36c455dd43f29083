//! A component with its model, planned and loaded for one phase at a time.
//!
//! How much memory a phase's activations take is not estimated but *rehearsed*: the same code runs once on a stand-in
//! device that books every allocation and computes nothing, which takes about a millisecond. So the plan is exact, and
//! a request that can't be done under the budget is refused before anything is loaded.

use std::sync::Arc;

use plimsoll_cpu::CpuDevice;
use plimsoll_device::{ByteCount, DType, Device};
use plimsoll_nn::{BuildError, Builder, Run};
use plimsoll_residency::{Component, Plan, Unit, plan};
use plimsoll_tensor::Compute;
use plimsoll_weights::TensorIndex;

use crate::PipelineError;

/// The account of all tensors that ops produce.
const ACTIVATIONS: &str = "activations";

/// A model's layers and the weights they want, loaded nowhere yet.
pub(crate) struct PhaseComponent<M> {
    pub(crate) name: String,
    pub(crate) model: M,
    pub(crate) units: Vec<Unit>,
}

impl<M> PhaseComponent<M> {
    /// Builds the model `name` out of `tensors`.
    ///
    /// # Errors
    /// [`PipelineError::Build`] if a tensor is missing or wrong, or one is left over that the model does not ignore.
    pub(crate) fn build(
        name: &str,
        tensors: &TensorIndex,
        device: &dyn Device,
        dtype: DType,
        ignores: fn(&str) -> bool,
        build: impl FnOnce(&Builder<'_>) -> Result<M, BuildError>,
    ) -> Result<Self, PipelineError> {
        let builder = Builder::new(tensors, device, dtype);
        let model = build(&builder)?;
        let units = builder.finish(ignores)?;
        Ok(Self { name: name.to_owned(), model, units })
    }
}

/// A phase that fits: its component's plan, made around its activations.
pub(crate) struct PhasePlan(Plan);

impl<M> PhaseComponent<M> {
    /// Rehearses `pass` and plans the component around it.
    ///
    /// # Errors
    /// [`PipelineError::OverBudget`] when not even the smallest plan fits; whatever the rehearsal fails with.
    pub(crate) fn plan(
        &self,
        device: &Arc<CpuDevice>,
        offload_streams: usize,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<(), PipelineError>,
    ) -> Result<PhasePlan, PipelineError> {
        let activation_bytes = self.rehearse(device, pass)?;
        let (budget, used) = (device.ledger().budget(), device.ledger().used());
        let besides = activation_bytes + used;
        let over =
            |needed| PipelineError::OverBudget { component: self.name.clone(), needed, budget, activation_bytes };
        let Some(available) = budget.0.checked_sub(besides.0).map(ByteCount) else {
            let least = plan(&self.units, ByteCount::ZERO, offload_streams)
                .map_or_else(|error| error.needed, |_| ByteCount::ZERO);
            return Err(over(besides + least));
        };
        let plan = plan(&self.units, available, offload_streams).map_err(|error| over(besides + error.needed))?;
        Ok(PhasePlan(plan))
    }

    /// Loads the component as planned, runs `pass`, and unloads it.
    pub(crate) fn run<R>(
        &self,
        device: &Arc<CpuDevice>,
        phase: &PhasePlan,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<R, PipelineError>,
    ) -> Result<R, PipelineError> {
        let shared: Arc<dyn Device> = device.clone();
        let component = Component::load(&shared, &self.name, self.units.clone(), phase.0.clone())?;
        let cx = Compute::new(shared, ACTIVATIONS);
        pass(&self.model, &Run { cx: &cx, weights: &component })
    }

    /// The most that `pass` has allocated at once for activations and scratch.
    fn rehearse(
        &self,
        device: &CpuDevice,
        pass: impl FnOnce(&M, &Run<'_>) -> Result<(), PipelineError>,
    ) -> Result<ByteCount, PipelineError> {
        // Weights and activations are booked on two stand-ins, so that the peak of one is not hidden by the other.
        let weights: Arc<dyn Device> = Arc::new(device.rehearsal());
        let everything = plan(&self.units, ByteCount::MAX, 0).expect("everything fits an unlimited budget");
        let component = Component::load(&weights, &self.name, self.units.clone(), everything)?;
        let activations: Arc<dyn Device> = Arc::new(device.rehearsal());
        let cx = Compute::new(activations.clone(), ACTIVATIONS);
        pass(&self.model, &Run { cx: &cx, weights: &component })?;
        Ok(activations.ledger().peak())
    }
}
