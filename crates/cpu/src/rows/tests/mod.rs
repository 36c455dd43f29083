//! Every operation against its definition in f64, under every instruction set that this CPU has.

mod activation;
mod elementwise;
mod moving;
mod norm;
mod threads;

use half::bf16;

use crate::isa::Isa;
use crate::naive::isas;
use crate::numbers::{Numbers, NumbersMut};

/// `len` numbers, evenly spread over `center - radius .. center + radius`, the same for the same seed.
fn numbers(seed: u64, len: usize, center: f32, radius: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| center + radius * next()).collect()
}

fn to_bf16(numbers: &[f32]) -> Vec<bf16> {
    numbers.iter().map(|number| bf16::from_f32(*number)).collect()
}

fn from_bf16(numbers: &[bf16]) -> Vec<f32> {
    numbers.iter().map(|number| number.to_f32()).collect()
}

/// One execution of an operation.
struct Execution {
    label: String,
    /// The input as stored, so rounded to bf16 in a bf16 execution.
    x: Vec<f32>,
    /// The output before.
    before: Vec<f32>,
    /// The output after.
    after: Vec<f32>,
    /// The largest relative error of rounding to the format.
    rounding: f64,
}

impl Execution {
    /// Asserts that the output is `expected` within `absolute`, and one rounding to the format.
    fn check(&self, absolute: f64, expected: impl IntoIterator<Item = f64>) {
        let expected: Vec<f64> = expected.into_iter().collect();
        assert_eq!(self.after.len(), expected.len(), "{}: length", self.label);
        for (idx, (found, expected)) in self.after.iter().zip(&expected).enumerate() {
            let tolerance = absolute + (expected.abs() + absolute) * self.rounding;
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= tolerance, "{}: [{idx}] is {found}, not {expected}; error {error:e}", self.label);
        }
    }
}

/// Executes `op` under every instruction set, in f32 and in bf16.
fn executions(x: &[f32], before: &[f32], op: impl Fn(Isa, Numbers<'_>, NumbersMut<'_>)) -> Vec<Execution> {
    let (x_bf16, before_bf16) = (to_bf16(x), to_bf16(before));
    let mut executions = Vec::new();
    for isa in isas() {
        let mut after = before.to_vec();
        op(isa, Numbers::F32(x), NumbersMut::F32(&mut after));
        let (x, before) = (x.to_vec(), before.to_vec());
        executions.push(Execution { label: format!("{isa} f32"), x, before, after, rounding: 2f64.powi(-24) });

        let mut after = before_bf16.clone();
        op(isa, Numbers::Bf16(&x_bf16), NumbersMut::Bf16(&mut after));
        let [x, before, after] = [&x_bf16, &before_bf16, &after].map(|numbers| from_bf16(numbers));
        executions.push(Execution { label: format!("{isa} bf16"), x, before, after, rounding: 2f64.powi(-8) });
    }
    executions
}
