//! The `model` schedule: timesteps and sigmas as diffusers computes them from the model's scheduler config.
//!
//! diffusers ties a spacing rule to each class with its own small differences, so the rule follows the sampler:
//!
//! | sampler | class | differences |
//! |---|---|---|
//! | `ddim` | `DDIMScheduler` | whole timesteps; each step goes back `trained / count` timesteps; the last one goes to sigma 0 or, with `set_alpha_to_one` false, to that of timestep 0 |
//! | `euler` | `EulerDiscreteScheduler` | fractional timesteps, sigma interpolated; Karras or exponential sigmas if configured |
//! | `euler_ancestral` | `EulerAncestralDiscreteScheduler` | as `euler`, but always ends at 0 and knows no Karras sigmas |
//! | `heun` | `HeunDiscreteScheduler` | as `euler`, but always ends at 0 and ignores zero terminal SNR |
//! | `dpmpp_2m`, `dpmpp_2m_sde` | `DPMSolverMultistepScheduler` | whole timesteps, one spacing finer, the last timestep left out; Karras sigmas span the whole table |
//! | `lcm` | `LCMScheduler` | a subset of the timesteps the model was distilled on |
//!
//! Different from diffusers, where floating point decides there:
//! - Where `trained / (trained / count)` rounds above `count` (61 steps of 1000, trailing), diffusers does one more step, at
//!   timestep -1, which it reads as the noisiest. Here it is left out.
//! - The DPM-Solver class cuts interpolated timesteps down to whole ones (exponential sigmas, or the cosine betas with
//!   Karras sigmas). The noisiest one, 999, is 998 there if it comes out a little below. Here it is 999.

use super::named::{evenly_spaced, exponential, karras};
use super::{NoiseLevel, ScheduleError, SigmaStep, SigmaSteps};
use crate::noise_config::{NoiseConfig, SigmaSpacing, TimestepSpacing};
use crate::noise_table::{DIFFUSERS_TERMINAL_ALPHA_BAR, NEAR_ZERO_TERMINAL_ALPHA_BAR, NoiseTable};
use crate::prediction::model_input_scale;
use crate::sampler::Sampler;

pub(super) fn steps(
    config: &NoiseConfig,
    sampler: Sampler,
    count: usize,
    strength: f64,
) -> Result<SigmaSteps, ScheduleError> {
    let trained = config.train_timestep_count;
    if count > trained {
        return Err(ScheduleError::TooFewTimesteps { count, max: trained });
    }
    let mut run = match sampler {
        Sampler::Ddim => ddim(config, count)?,
        Sampler::Euler | Sampler::EulerAncestral | Sampler::Heun => euler(config, sampler, count)?,
        Sampler::Dpmpp2m | Sampler::Dpmpp2mSde => dpm_solver(config, count)?,
        Sampler::Lcm => lcm(config, count)?,
    };
    let kept_count = ((count as f64 * strength) as usize).min(run.steps.len());
    if kept_count == 0 {
        return Err(ScheduleError::StrengthLeavesNothing { count, strength });
    }
    run.steps.drain(..run.steps.len() - kept_count);
    run.noise_scale_on_image = run.steps[0].from.sigma;
    Ok(run)
}

fn ddim(config: &NoiseConfig, count: usize) -> Result<SigmaSteps, ScheduleError> {
    let table = config.table_with_terminal(NEAR_ZERO_TERMINAL_ALPHA_BAR)?;
    let trained = table.timestep_count();
    let timesteps = match config.timestep_spacing.unwrap_or(TimestepSpacing::Leading) {
        TimestepSpacing::Linspace => whole(evenly_spaced(0.0, (trained - 1) as f64, count)),
        TimestepSpacing::Leading => leading(trained / count, config.steps_offset, count),
        TimestepSpacing::Trailing => trailing(trained, count),
    };
    let stride = trained / count;
    let final_sigma = if config.final_alpha_is_one { 0.0 } else { table.sigma_min() };
    let steps = timesteps.iter().map(|&timestep| {
        let to = match timestep.checked_sub(stride) {
            Some(to) => level(&table, to, count)?,
            None => NoiseLevel { sigma: final_sigma, timestep: 0.0 },
        };
        Ok(SigmaStep { from: level(&table, timestep, count)?, to })
    });
    variance_preserving(steps.collect::<Result<_, ScheduleError>>()?)
}

fn lcm(config: &NoiseConfig, count: usize) -> Result<SigmaSteps, ScheduleError> {
    let table = config.table_with_terminal(NEAR_ZERO_TERMINAL_ALPHA_BAR)?;
    let origin_count = config.lcm_origin_step_count;
    if count > origin_count {
        return Err(ScheduleError::TooFewTimesteps { count, max: origin_count });
    }
    if origin_count > table.timestep_count() {
        return Err(ScheduleError::TooFewTimesteps { count: origin_count, max: table.timestep_count() });
    }
    let stride = table.timestep_count() / origin_count;
    let origin_idx = |idx: usize| (idx as f64 * (origin_count as f64 / count as f64)).floor() as usize;
    let levels = (0..count).map(|idx| level(&table, (origin_count - origin_idx(idx)) * stride - 1, count));
    variance_preserving(SigmaSteps::between(&then_final(levels.collect::<Result<_, _>>()?, 0.0)))
}

fn euler(config: &NoiseConfig, sampler: Sampler, count: usize) -> Result<SigmaSteps, ScheduleError> {
    let heun = sampler == Sampler::Heun;
    let table = match heun {
        true => NoiseTable::from_betas(&config.beta_values())?,
        false => config.table_with_terminal(DIFFUSERS_TERMINAL_ALPHA_BAR)?,
    };
    let trained = table.timestep_count();
    let spacing = config.timestep_spacing.unwrap_or(TimestepSpacing::Linspace);
    let timesteps: Vec<f64> = match spacing {
        TimestepSpacing::Linspace => evenly_spaced((trained - 1) as f64, 0.0, count).collect(),
        TimestepSpacing::Leading => as_f64(&leading(trained / count, config.steps_offset, count)),
        TimestepSpacing::Trailing => as_f64(&trailing(trained, count)),
    };
    // One step of linspace spacing is timestep 0 in numpy, whatever the direction.
    let timesteps = if count == 1 && spacing == TimestepSpacing::Linspace { vec![0.0] } else { timesteps };
    let sigma_spacing = match sampler {
        Sampler::EulerAncestral => SigmaSpacing::Unchanged,
        _ => config.sigma_spacing,
    };
    let plain: Vec<f64> = timesteps.iter().map(|&timestep| table.sigma_at_linear(timestep)).collect();
    let (first, last) = (plain[0], plain[plain.len() - 1]);
    let interpolated = |sigma: f64| NoiseLevel { sigma, timestep: table.timestep_of(sigma) };
    let levels: Vec<NoiseLevel> = match sigma_spacing {
        SigmaSpacing::Unchanged => {
            plain.iter().zip(&timesteps).map(|(&sigma, &timestep)| NoiseLevel { sigma, timestep }).collect()
        }
        SigmaSpacing::Karras => karras(first, last, count).map(interpolated).collect(),
        SigmaSpacing::Exponential => exponential(first, last, count).map(interpolated).collect(),
    };
    let ends_at_zero = config.final_sigma_is_zero || sampler != Sampler::Euler;
    let final_sigma = if ends_at_zero { 0.0 } else { table.sigma_min() };
    let sigma_max = levels[0].sigma;
    let noise_scale = if spacing == TimestepSpacing::Leading { sigma_max.hypot(1.0) } else { sigma_max };
    let steps = SigmaSteps::between(&then_final(levels, final_sigma));
    // This class works in the variance-exploding form and hands out its last sample as it is.
    Ok(SigmaSteps { steps, noise_scale, noise_scale_on_image: sigma_max, final_scale: 1.0 })
}

fn dpm_solver(config: &NoiseConfig, count: usize) -> Result<SigmaSteps, ScheduleError> {
    let table = config.table_with_terminal(DIFFUSERS_TERMINAL_ALPHA_BAR)?;
    let trained = table.timestep_count();
    let interpolated = |sigma: f64| {
        let timestep = table.timestep_of(sigma);
        let rounds = !matches!(config.betas, crate::noise_config::Betas::SquaredCosine);
        NoiseLevel { sigma, timestep: if rounds { timestep.round_ties_even() } else { timestep.trunc() } }
    };
    let levels: Vec<NoiseLevel> = match config.sigma_spacing {
        SigmaSpacing::Karras => karras(table.sigma_max(), table.sigma_min(), count).map(interpolated).collect(),
        SigmaSpacing::Exponential => exponential(table.sigma_max(), table.sigma_min(), count)
            .map(|sigma| NoiseLevel { sigma, timestep: table.timestep_of(sigma).trunc() })
            .collect(),
        SigmaSpacing::Unchanged => {
            let timesteps = match config.timestep_spacing.unwrap_or(TimestepSpacing::Linspace) {
                TimestepSpacing::Linspace => {
                    let mut timesteps = whole(evenly_spaced(0.0, (trained - 1) as f64, count + 1));
                    timesteps.truncate(count);
                    timesteps
                }
                TimestepSpacing::Leading => {
                    let stride = trained / (count + 1);
                    leading(stride, config.steps_offset + stride, count)
                }
                TimestepSpacing::Trailing => trailing(trained, count),
            };
            timesteps
                .iter()
                .map(|&timestep| NoiseLevel {
                    sigma: table.sigma_at_linear(timestep as f64),
                    timestep: timestep as f64,
                })
                .collect()
        }
    };
    let final_sigma = if config.final_sigma_is_zero { 0.0 } else { table.sigma_min() };
    variance_preserving(SigmaSteps::between(&then_final(levels, final_sigma)))
}

/// A run of a class that works in the variance-preserving form: it begins with plain noise and ends with its latent.
fn variance_preserving(steps: Vec<SigmaStep>) -> Result<SigmaSteps, ScheduleError> {
    let (first, last) = (steps.first().ok_or(ScheduleError::NoSteps)?.from.sigma, steps[steps.len() - 1].to.sigma);
    let noise_scale = first.hypot(1.0);
    Ok(SigmaSteps { steps, noise_scale, noise_scale_on_image: first, final_scale: model_input_scale(last) })
}

fn then_final(mut levels: Vec<NoiseLevel>, sigma: f64) -> Vec<NoiseLevel> {
    // Levels that repeat (more steps than distinct timesteps) would make steps that go nowhere.
    levels.dedup_by(|later, earlier| later.sigma >= earlier.sigma);
    levels.pop_if(|level| level.sigma <= sigma);
    levels.push(NoiseLevel { sigma, timestep: 0.0 });
    levels
}

fn level(table: &NoiseTable, timestep: usize, count: usize) -> Result<NoiseLevel, ScheduleError> {
    let last = table.timestep_count() - 1;
    let sigma = *table.sigmas().get(timestep).ok_or(ScheduleError::BeyondTraining { count, timestep, last })?;
    Ok(NoiseLevel { sigma, timestep: timestep as f64 })
}

/// Multiples of `stride` from `count - 1` down to 0, plus `offset`.
fn leading(stride: usize, offset: usize, count: usize) -> Vec<usize> {
    (0..count).rev().map(|idx| idx * stride + offset).collect()
}

/// From `trained` down in equal strides, rounded, less one. The stride is numpy's (`arange` takes the difference of its
/// first two numbers), for the last bit decides between two timesteps where a number ends in one half.
fn trailing(trained: usize, count: usize) -> Vec<usize> {
    let trained = trained as f64;
    let stride = (trained - trained / count as f64) - trained;
    (0..count).map(|idx| (trained + idx as f64 * stride).round_ties_even() as usize).map(|end| end.max(1) - 1).collect()
}

/// Rounds rising numbers to whole ones, and lets them fall.
fn whole(rising: impl Iterator<Item = f64>) -> Vec<usize> {
    let mut timesteps: Vec<usize> = rising.map(|timestep| timestep.round_ties_even() as usize).collect();
    timesteps.reverse();
    timesteps
}

fn as_f64(timesteps: &[usize]) -> Vec<f64> {
    timesteps.iter().map(|&timestep| timestep as f64).collect()
}
