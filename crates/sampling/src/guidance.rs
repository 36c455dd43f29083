//! Classifier-free guidance (Ho, Salimans 2022).

/// How far the prediction is pushed from the unconditional one towards, and beyond, the conditional one:
/// `unconditional + scale * (conditional - unconditional)`, on denoised pictures or on network outputs, which comes to
/// the same, for the one is linear in the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guidance {
    scale: f64,
}

/// A guidance scale that is no number.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("guidance `{scale}` must be a finite number")]
pub struct GuidanceError {
    /// What was given.
    pub scale: f64,
}

impl Guidance {
    /// 1 means the conditional prediction alone, 0 the unconditional one alone; usual are 3 to 12.
    ///
    /// # Errors
    /// [`GuidanceError`] if `scale` is not finite.
    pub fn new(scale: f64) -> Result<Self, GuidanceError> {
        if scale.is_finite() { Ok(Self { scale }) } else { Err(GuidanceError { scale }) }
    }

    /// The scale.
    pub fn scale(self) -> f64 {
        self.scale
    }

    /// Whether the network has to be evaluated without the prompt too. Not at scale 1: that halves the work.
    ///
    /// ComfyUI's rule. diffusers leaves guidance out at scales below 1 too.
    pub fn needs_unconditional(self) -> bool {
        (self.scale - 1.0).abs() > 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_1_needs_no_unconditional_pass() {
        assert!(!Guidance::new(1.0).unwrap().needs_unconditional());
        assert!(Guidance::new(0.0).unwrap().needs_unconditional());
        assert!(Guidance::new(7.5).unwrap().needs_unconditional());
        assert!(Guidance::new(f64::NAN).is_err());
    }
}
