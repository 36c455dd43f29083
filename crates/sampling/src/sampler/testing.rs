//! Latents without a device, for tests.

use super::LatentMath;

/// Arithmetic on plain vectors, in f32 as on the device.
pub(crate) struct VecMath;

impl LatentMath for VecMath {
    type Latent = Vec<f32>;
    type Error = std::convert::Infallible;

    fn combine(&self, terms: &[(f64, &Vec<f32>)]) -> Result<Vec<f32>, Self::Error> {
        let sum = |idx| terms.iter().map(|(factor, latent)| *factor as f32 * latent[idx]).sum();
        Ok((0..terms[0].1.len()).map(sum).collect())
    }

    fn upload_like(&self, numbers: &[f32], like: &Vec<f32>) -> Result<Vec<f32>, Self::Error> {
        assert_eq!(numbers.len(), like.len());
        Ok(numbers.to_vec())
    }
}
