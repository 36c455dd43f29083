//! The embedding of the timestep, and of SDXL's added conditioning.

use plimsoll_nn::{BuildError, Builder, Linear, NnError, Run};
use plimsoll_tensor::{Activation, DType, Tensor};

use super::TimeConfig;

/// Periods reach from `2 pi` to `2 pi` times this.
const PERIOD_MAX: f64 = 10000.0;

/// Sinusoidal embeddings of numbers, `channels` for each, one number after the other.
///
/// Frequencies and phases are rounded to f32 where torch rounds them, and the functions to the nearest f32, so the
/// result does not depend on the platform. Source: diffusers 0.42.1, models/embeddings.py#L27-L78,
/// `get_timestep_embedding` (Vaswani et al. 2017; Ho et al. 2020).
pub fn sinusoids(numbers: &[f32], channels: usize, flip_sin_to_cos: bool, freq_shift: f32) -> Vec<f32> {
    let half = channels / 2;
    let decay = -PERIOD_MAX.ln() as f32;
    let frequency = |idx: usize| {
        let exponent = decay * idx as f32 / (half as f32 - freq_shift);
        f64::from(exponent).exp() as f32
    };
    let frequencies: Vec<f32> = (0..half).map(frequency).collect();
    let mut embeddings = Vec::with_capacity(numbers.len() * channels);
    for number in numbers {
        let phases = || frequencies.iter().map(|frequency| f64::from(number * frequency));
        let (sines, cosines) = (phases().map(|phase| phase.sin() as f32), phases().map(|phase| phase.cos() as f32));
        if flip_sin_to_cos {
            embeddings.extend(cosines.chain(sines));
        } else {
            embeddings.extend(sines.chain(cosines));
        }
        // An odd number of channels is filled up with a zero.
        embeddings.extend((2 * half..channels).map(|_| 0.0));
    }
    embeddings
}

impl TimeConfig {
    /// Sinusoidal embeddings of numbers, with this config's order and shift: `[numbers, channels]` on the device.
    pub(crate) fn embed(
        &self,
        run: &Run<'_>,
        numbers: &[f32],
        channels: usize,
        dtype: DType,
    ) -> Result<Tensor, NnError> {
        let embeddings = sinusoids(numbers, channels, self.flip_sin_to_cos, self.freq_shift);
        Ok(run.cx.upload(&embeddings, &[numbers.len(), channels], dtype)?)
    }
}

/// Two linear layers with `silu` between them.
///
/// Source: diffusers 0.42.1, models/embeddings.py#L1027-L1072, `TimestepEmbedding`.
#[derive(Debug)]
pub(crate) struct EmbeddingMlp {
    linear_1: Linear,
    linear_2: Linear,
}

impl EmbeddingMlp {
    pub(crate) fn build(b: &Builder<'_>, in_width: usize, width: usize) -> Result<Self, BuildError> {
        Ok(Self {
            linear_1: b.linear("linear_1", in_width, width, true)?,
            linear_2: b.linear("linear_2", width, width, true)?,
        })
    }

    /// # Shapes
    /// - `x`: `[batch, in width]`
    /// - returns `[batch, width]`
    pub(crate) fn forward(&self, run: &Run<'_>, x: Tensor) -> Result<Tensor, NnError> {
        let x = run.cx.activate(self.linear_1.forward(run, &x)?, Activation::Silu)?;
        self.linear_2.forward(run, &x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by diffusers 0.42.1 on torch 2.10.0: `get_timestep_embedding(torch.tensor([0., 981., 37.5]), 7, flip, shift)`.
    /// The tolerance is two steps of an f32 phase of 1000, which torch's `exp` may be off by.
    #[test]
    fn equals_the_reference_in_every_order() {
        let (flip_sin_to_cos, freq_shift) = (true, 0.0);
        let cosines_first = [
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            [0.679_957_2, 0.019_103_363, -0.516_453_56, 0.733_251_8, 0.999_817_5, 0.856_315_2, 0.0],
            [0.980_242_67, -0.168_984_85, 0.996_738_14, -0.197_798_8, 0.985_618_65, 0.080_703_44, 0.0],
        ];
        check(sinusoids(&[0.0, 981.0, 37.5], 7, flip_sin_to_cos, freq_shift), &cosines_first);
        let (flip_sin_to_cos, freq_shift) = (false, 1.0);
        let sines_first_shifted = [
            [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0],
            [0.733_251_8, -0.375_764_43, 0.097_942_725, 0.679_957_2, -0.926_715_2, 0.995_192_05, 0.0],
            [-0.197_798_8, 0.366_272_54, 0.003_749_990_8, 0.980_242_67, 0.930_507_6, 0.999_992_97, 0.0],
        ];
        check(sinusoids(&[0.0, 981.0, 37.5], 7, flip_sin_to_cos, freq_shift), &sines_first_shifted);
    }

    fn check(found: Vec<f32>, expected: &[[f32; 7]]) {
        assert_eq!(found.len(), expected.as_flattened().len());
        for (found, expected) in found.iter().zip(expected.as_flattened()) {
            assert!((found - expected).abs() <= 1.3e-4, "{found} is not {expected}");
        }
    }
}
