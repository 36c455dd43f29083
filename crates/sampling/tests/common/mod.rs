//! Shared by the golden tests: arithmetic on plain vectors, and reading JSON.

#![allow(dead_code, reason = "each test file uses a part")]

use std::convert::Infallible;

use plimsoll_sampling::LatentMath;
use serde_json::Value;

/// Latents as f32 vectors, as on the device.
pub(crate) struct VecMath;

impl LatentMath for VecMath {
    type Latent = Vec<f32>;
    type Error = Infallible;

    fn combine(&self, terms: &[(f64, &Vec<f32>)]) -> Result<Vec<f32>, Infallible> {
        let sum = |idx| terms.iter().map(|(factor, latent)| *factor as f32 * latent[idx]).sum();
        Ok((0..terms[0].1.len()).map(sum).collect())
    }

    fn upload_like(&self, numbers: &[f32], like: &Vec<f32>) -> Result<Vec<f32>, Infallible> {
        assert_eq!(numbers.len(), like.len());
        Ok(numbers.to_vec())
    }
}

/// A JSON array of numbers.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// A JSON array of objects or arrays.
pub(crate) fn entries(value: &Value) -> &[Value] {
    let entries = value.as_array().unwrap();
    assert!(!entries.is_empty());
    entries
}

/// Asserts that the numbers are within `relative` of the expected ones' size.
#[track_caller]
pub(crate) fn assert_relatively_close(name: &str, actual: &[f64], expected: &[f64], relative: f64) {
    assert_eq!(actual.len(), expected.len(), "{name}: {actual:?} instead of {expected:?}");
    for (actual_number, expected_number) in actual.iter().zip(expected) {
        let close = (actual_number - expected_number).abs() <= relative * expected_number.abs();
        assert!(close, "{name}: {actual:?} instead of {expected:?}");
    }
}
