//! The scale of latents, on the host, where samplers keep them.

/// The relation of an autoencoder's latents `z` and a diffusion model's samples `x`, per channel:
/// `x = (z - shift) * scale`, `z = x / scale + shift`.
///
/// Source: diffusers 0.42.1. `scaling_factor` and `shift_factor`: pipelines/flux/pipeline_flux.py#L962 and the like
/// (`latents / scaling_factor + shift_factor`); `latents_mean` and `latents_std`:
/// pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl.py#L1285 (`latents * std / scaling_factor + mean`).
#[derive(Clone, Debug, PartialEq)]
pub struct LatentScale {
    /// For each channel.
    pub scale: Vec<f32>,
    /// For each channel.
    pub shift: Vec<f32>,
}

impl LatentScale {
    /// A diffusion model's samples from an autoencoder's latents, in place: `x = (z - shift) * scale`.
    ///
    /// `latents` are `[.., channels]`; a row is cut short only if there are no such channels.
    pub fn to_samples(&self, latents: &mut [f32]) {
        self.each(latents, |z, scale, shift| (z - shift) * scale);
    }

    /// An autoencoder's latents from a diffusion model's samples, in place: `z = x / scale + shift`.
    pub fn to_latents(&self, samples: &mut [f32]) {
        self.each(samples, |x, scale, shift| x / scale + shift);
    }

    fn each(&self, numbers: &mut [f32], f: impl Fn(f32, f32, f32) -> f32) {
        let channels = self.scale.len();
        for row in numbers.chunks_mut(channels) {
            for ((number, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
                *number = f(*number, *scale, *shift);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_latents_are_inverse_per_channel() {
        let scale = LatentScale { scale: vec![0.5, 2.0], shift: vec![1.0, -1.0] };
        let mut numbers = [3.0, 0.0, 1.0, -1.0];
        scale.to_samples(&mut numbers);
        assert_eq!(numbers, [1.0, 2.0, 0.0, 0.0]);
        scale.to_latents(&mut numbers);
        assert_eq!(numbers, [3.0, 0.0, 1.0, -1.0]);
    }
}
