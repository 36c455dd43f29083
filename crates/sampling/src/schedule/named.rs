//! The schedules that depend on the noise table only, with ComfyUI's meaning.

use super::{NoiseLevel, STEP_COUNT_MAX, ScheduleError, SigmaSchedule, SigmaSteps};
use crate::noise_table::NoiseTable;

/// A strength above this counts as 1.
const FULL_STRENGTH: f64 = 0.9999;
/// Sigmas within this relative distance of the table's largest count as it.
const SIGMA_MAX_TOLERANCE: f64 = 1e-5;
/// A smallest sigma below this counts as 0, so that no further 0 is appended.
const SIGMA_ZERO_TOLERANCE: f64 = 1e-5;

pub(super) fn steps(
    schedule: SigmaSchedule,
    table: &NoiseTable,
    count: usize,
    strength: f64,
) -> Result<SigmaSteps, ScheduleError> {
    let mut sigmas = if strength > FULL_STRENGTH {
        sigmas(schedule, table, count)
    } else {
        let whole_count = (count as f64 / strength).floor();
        if whole_count > STEP_COUNT_MAX as f64 {
            return Err(ScheduleError::TooManySteps { count: whole_count, max: STEP_COUNT_MAX });
        }
        let mut sigmas = sigmas(schedule, table, whole_count as usize);
        sigmas.drain(..sigmas.len().saturating_sub(count + 1));
        sigmas
    };
    // More steps than table entries repeat levels; a step that goes nowhere would divide by zero.
    sigmas.dedup();
    let level = |&sigma: &f64| NoiseLevel { sigma, timestep: table.nearest_timestep(sigma) as f64 };
    let levels: Vec<NoiseLevel> = sigmas.iter().map(level).collect();
    let steps = SigmaSteps::between(&levels);
    let first = steps.first().ok_or(ScheduleError::NoSteps)?.from.sigma;
    // At the noisiest level networks were trained on (nearly) pure noise of the variance-preserving form.
    let noise_scale = if first > table.sigma_max() * (1.0 - SIGMA_MAX_TOLERANCE) { first.hypot(1.0) } else { first };
    Ok(SigmaSteps { steps, noise_scale, noise_scale_on_image: noise_scale, final_scale: 1.0 })
}

/// Falling sigmas that end at 0.
fn sigmas(schedule: SigmaSchedule, table: &NoiseTable, count: usize) -> Vec<f64> {
    match schedule {
        SigmaSchedule::Normal => {
            if table.sigma_min() < SIGMA_ZERO_TOLERANCE {
                evenly_spaced(last_timestep(table), 0.0, count + 1).map(|timestep| table.sigma_at(timestep)).collect()
            } else {
                let timesteps = evenly_spaced(last_timestep(table), 0.0, count);
                then_zero(timesteps.map(|timestep| table.sigma_at(timestep)))
            }
        }
        SigmaSchedule::SgmUniform => {
            let timesteps = evenly_spaced(last_timestep(table), 0.0, count + 1).take(count);
            then_zero(timesteps.map(|timestep| table.sigma_at(timestep)))
        }
        SigmaSchedule::Karras => then_zero(karras(table.sigma_max(), table.sigma_min(), count)),
        SigmaSchedule::Exponential => then_zero(exponential(table.sigma_max(), table.sigma_min(), count)),
        SigmaSchedule::Simple => {
            let stride = table.timestep_count() as f64 / count as f64;
            let from_noisiest = |idx: usize| (idx as f64 * stride) as usize;
            then_zero((0..count).map(|idx| table.sigmas()[table.timestep_count() - 1 - from_noisiest(idx)]))
        }
        SigmaSchedule::DdimUniform => {
            let clean = &table.sigmas()[1];
            let (stride_count, zero) =
                if *clean < SIGMA_ZERO_TOLERANCE { (count + 1, None) } else { (count, Some(0.0)) };
            let stride = (table.timestep_count() / stride_count).max(1);
            let ascending = table.sigmas()[1..].iter().step_by(stride).copied();
            let mut sigmas: Vec<f64> = zero.into_iter().chain(ascending).collect();
            sigmas.reverse();
            sigmas
        }
        SigmaSchedule::Model => unreachable!("`model` has its own file"),
    }
}

fn last_timestep(table: &NoiseTable) -> f64 {
    (table.timestep_count() - 1) as f64
}

fn then_zero(sigmas: impl Iterator<Item = f64>) -> Vec<f64> {
    sigmas.chain([0.0]).collect()
}

/// `count` numbers from `first` to `last`; only `first` if `count` is 1. Rounds like numpy's `linspace`.
pub(super) fn evenly_spaced(first: f64, last: f64, count: usize) -> impl Iterator<Item = f64> {
    let stride = (last - first) / count.saturating_sub(1).max(1) as f64;
    (0..count).map(move |idx| if idx > 0 && idx + 1 == count { last } else { first + idx as f64 * stride })
}

/// Karras et al. 2022, equation 5, with rho 7: evenly spaced seventh roots.
pub(super) fn karras(first: f64, last: f64, count: usize) -> impl Iterator<Item = f64> {
    const RHO: f64 = 7.0;
    evenly_spaced(first.powf(1.0 / RHO), last.powf(1.0 / RHO), count).map(|root| root.powf(RHO))
}

/// Evenly spaced logarithms.
pub(super) fn exponential(first: f64, last: f64, count: usize) -> impl Iterator<Item = f64> {
    evenly_spaced(first.ln(), last.ln(), count).map(f64::exp)
}
