//! Latents on the device.

use plimsoll_tensor::{Compute, DType, OpError, Tensor};

use crate::sampler::LatentMath;

impl LatentMath for Compute {
    type Latent = Tensor;
    type Error = OpError;

    fn combine(&self, terms: &[(f64, &Tensor)]) -> Result<Tensor, OpError> {
        let terms: Vec<(f32, &Tensor)> = terms.iter().map(|&(factor, latent)| (factor as f32, latent)).collect();
        Compute::combine(self, &terms)
    }

    fn upload_like(&self, numbers: &[f32], like: &Tensor) -> Result<Tensor, OpError> {
        self.upload(numbers, like.shape(), DType::F32)
    }
}
