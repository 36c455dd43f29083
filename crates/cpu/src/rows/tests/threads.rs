use half::bf16;
use plimsoll_device::{Activation, GroupNormShape, ResizeShape};

use super::super::{
    activate, add, add_per_batch, combine, geglu, group_norm, group_norm_scratch_len, layer_norm, prelu, resize_nearest,
};
use super::{isas, numbers, to_bf16};
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// Executes `op` on pools of 1, 2, 3 and 7 threads and asserts that the outputs are the same bits.
fn check(name: &str, x: &[f32], len: usize, op: impl Fn(Isa, Numbers<'_>, NumbersMut<'_>) + Sync) {
    let x_bf16 = to_bf16(x);
    for isa in isas() {
        let outputs: Vec<(Vec<u32>, Vec<u16>)> = [1, 2, 3, 7]
            .into_iter()
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (mut y, mut y_bf16) = (vec![0.5; len], vec![bf16::ONE; len]);
                pool.install(|| {
                    op(isa, Numbers::F32(x), NumbersMut::F32(&mut y));
                    op(isa, Numbers::Bf16(&x_bf16), NumbersMut::Bf16(&mut y_bf16));
                });
                let bits_f32 = y.iter().map(|y| y.to_bits()).collect();
                (bits_f32, y_bf16.iter().map(|y| y.to_bits()).collect())
            })
            .collect();
        assert!(outputs.iter().all(|output| *output == outputs[0]), "{name} under {isa}");
    }
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    let x = numbers(1, 200_000, 0.3, 2.0);
    let weights = numbers(2, 800, 1.0, 0.5);
    for (batch, channels, groups) in [(1, 320, 32), (2, 40, 4)] {
        let shape = GroupNormShape { batch, pixels: 500, channels, groups, epsilon: 1e-5, silu: true };
        let len = batch * 500 * channels;
        check("group_norm", &x[..len], len, |isa, x, y| {
            let mut scratch = vec![0.0; group_norm_scratch_len(&shape)];
            group_norm(isa, &shape, x, &weights[..channels], &weights[400..][..channels], y, &mut scratch);
        });
    }
    check("layer_norm", &x, 200_000, |isa, x, y| {
        layer_norm(isa, 500, 400, 1e-5, x, &weights[..400], &weights[400..], y);
    });
    check("activate", &[], 200_000, |isa, _, y| activate(isa, Activation::Gelu, y));
    check("geglu", &x, 100_000, |isa, x, y| geglu(isa, 250, 400, x, y));
    check("add", &x, 200_000, add);
    check("add_per_batch", &x[..800], 160_000, |isa, x, y| add_per_batch(isa, 2, 200, 400, x, y));
    check("combine", &x, 200_000, |isa, x, y| combine(isa, &[(0.3, x), (0.9, x)], y));
    check("prelu", &[], 200_000, |isa, _, y| prelu(isa, 500, 400, &weights[..400], y));
    let shape = ResizeShape { batch: 2, input: [25, 100], output: [50, 200], channels: 8 };
    check("resize_nearest", &x[..40_000], 160_000, |_, x, y| resize_nearest(&shape, x, y));
}
