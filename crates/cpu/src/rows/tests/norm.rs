use plimsoll_device::GroupNormShape;

use super::super::{group_norm, group_norm_scratch_len, layer_norm};
use super::{executions, isas, numbers};
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

fn run_group_norm(isa: Isa, shape: &GroupNormShape, x: Numbers<'_>, weights: &[f32], y: NumbersMut<'_>) {
    let (scale, shift) = weights.split_at(shape.channels);
    // What is in the scratch before must not matter.
    let mut scratch = vec![f32::NAN; group_norm_scratch_len(shape)];
    group_norm(isa, shape, x, scale, shift, y, &mut scratch);
}

fn mean_and_variance(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, values.map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}

fn exact_group_norm(shape: &GroupNormShape, x: &[f32], weights: &[f32]) -> Vec<f64> {
    let (scale, shift) = weights.split_at(shape.channels);
    let (image_len, group_len) = (shape.pixels * shape.channels, shape.channels / shape.groups);
    let mut y = vec![0.0; x.len()];
    for image in 0..shape.batch {
        for group in 0..shape.groups {
            let idxs = (0..shape.pixels).flat_map(|pixel| {
                let first = image * image_len + pixel * shape.channels + group * group_len;
                first..first + group_len
            });
            let (mean, variance) = mean_and_variance(idxs.clone().map(|idx| f64::from(x[idx])));
            for idx in idxs {
                let channel = idx % shape.channels;
                let normal = (f64::from(x[idx]) - mean) / (variance + f64::from(shape.epsilon)).sqrt();
                let value = normal * f64::from(scale[channel]) + f64::from(shift[channel]);
                y[idx] = if shape.silu { value / (1.0 + (-value).exp()) } else { value };
            }
        }
    }
    y
}

#[test]
fn group_norm_is_its_definition() {
    let sizes = [
        [1, 1, 4, 2],
        [2, 7, 24, 3],
        [1, 9, 20, 4],
        [3, 256, 32, 32],
        [2, 35, 30, 5],
        [1, 1025, 6, 3],
        [1, 64, 1280, 32],
        [2, 300, 320, 32],
        [1, 5, 2080, 5],
        [1, 3, 1, 1],
        [1, 1, 7, 7],
        [2, 40_000, 3, 1],
        [1, 4096, 96, 32],
        [0, 5, 8, 2],
        [2, 0, 8, 2],
    ];
    for [batch, pixels, channels, groups] in sizes {
        for silu in [false, true] {
            let shape = GroupNormShape { batch, pixels, channels, groups, epsilon: 1e-5, silu };
            let x = numbers(1, batch * pixels * channels, 0.75, 2.0);
            let weights = numbers(2, 2 * channels, 0.5, 1.0);
            let y = vec![f32::NAN; x.len()];
            for execution in executions(&x, &y, |isa, x, y| run_group_norm(isa, &shape, x, &weights, y)) {
                // Numbers up to 4: some units in the last place.
                execution.check(2e-6, exact_group_norm(&shape, &execution.x, &weights));
            }
        }
    }
}

/// A million numbers in a group, whose mean is 170 times their deviation.
#[test]
fn group_norm_of_a_large_image_loses_no_accuracy() {
    let shape = GroupNormShape { batch: 1, pixels: 512 * 512, channels: 4, groups: 1, epsilon: 1e-6, silu: false };
    let x = numbers(3, shape.pixels * shape.channels, 100.0, 1.0);
    let weights = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    let expected = exact_group_norm(&shape, &x, &weights);
    for isa in isas() {
        let mut y = vec![0.0; x.len()];
        run_group_norm(isa, &shape, Numbers::F32(&x), &weights, NumbersMut::F32(&mut y));
        for (found, expected) in y.iter().zip(&expected) {
            // The mean is held as f32: half a unit in the last place of 100, over the deviation of 0.577, is 6.6e-6.
            assert!((f64::from(*found) - expected).abs() < 8e-6, "{isa}: {found}, not {expected}");
        }
    }
}

#[test]
fn group_norm_keeps_a_nan_in_its_group() {
    let shape = GroupNormShape { batch: 2, pixels: 50, channels: 12, groups: 3, epsilon: 1e-5, silu: true };
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = numbers(4, 2 * 50 * 12, 0.0, 1.0);
        x[50 * 12 + 31 * 12 + 5] = special;
        for isa in isas() {
            let mut y = vec![0.0; x.len()];
            run_group_norm(isa, &shape, Numbers::F32(&x), &[1.0; 24], NumbersMut::F32(&mut y));
            for (idx, value) in y.iter().enumerate() {
                assert_eq!(value.is_nan(), idx >= 50 * 12 && idx % 12 / 4 == 1, "{isa}: [{idx}] is {value}");
            }
        }
    }
}

#[test]
fn equal_numbers_become_the_shift() {
    let weights = [[2.0; 8], [0.25; 8]].concat();
    let x = vec![0.3; 77 * 8];
    let shape = GroupNormShape { batch: 1, pixels: 77, channels: 8, groups: 2, epsilon: 1e-5, silu: false };
    for isa in isas() {
        let mut y = vec![0.0; x.len()];
        run_group_norm(isa, &shape, Numbers::F32(&x), &weights, NumbersMut::F32(&mut y));
        assert!(y.iter().all(|value| *value == 0.25), "{isa}: {y:?}");
        layer_norm(isa, 77, 8, 1e-5, Numbers::F32(&x), &weights[..8], &weights[8..], NumbersMut::F32(&mut y));
        assert!(y.iter().all(|value| *value == 0.25), "{isa}: {y:?}");
    }
}

#[test]
fn layer_norm_is_its_definition() {
    for (rows, columns) in
        [(0, 4), (3, 0), (5, 1), (3, 2), (2, 31), (4, 32), (3, 33), (77, 768), (211, 320), (2, 40_001)]
    {
        let x = numbers(5, rows * columns, -0.5, 3.0);
        let (scale, shift) = (numbers(6, columns, 1.0, 0.5), numbers(7, columns, 0.0, 1.0));
        let y = vec![f32::NAN; x.len()];
        for execution in executions(&x, &y, |isa, x, y| layer_norm(isa, rows, columns, 1e-5, x, &scale, &shift, y)) {
            let expected = execution.x.chunks_exact(columns.max(1)).flat_map(|row| {
                let (mean, variance) = mean_and_variance(row.iter().map(|x| f64::from(*x)));
                let (scale, shift) = (&scale, &shift);
                row.iter().enumerate().map(move |(column, x)| {
                    (f64::from(*x) - mean) / (variance + 1e-5f32 as f64).sqrt() * f64::from(scale[column])
                        + f64::from(shift[column])
                })
            });
            // Numbers up to 4: some units in the last place.
            execution.check(2e-6, expected);
        }
    }
}

#[test]
fn layer_norm_keeps_a_nan_in_its_row() {
    let mut x = numbers(8, 3 * 40, 0.0, 1.0);
    x[40 + 35] = f32::INFINITY;
    for isa in isas() {
        let mut y = vec![0.0; x.len()];
        layer_norm(isa, 3, 40, 1e-5, Numbers::F32(&x), &[1.0; 40], &[0.0; 40], NumbersMut::F32(&mut y));
        assert!(y.iter().enumerate().all(|(idx, value)| value.is_nan() == (idx / 40 == 1)), "{isa}: {y:?}");
    }
}
