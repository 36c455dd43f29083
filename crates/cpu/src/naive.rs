//! What the kernels' tests compare with: plain loops in f64, and seeded numbers.

use half::bf16;
use plimsoll_device::{AttentionShape, ConvShape, DType};

use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};
use crate::pack::{pack, packed_len};

/// Seeded numbers in `-1..1` (a linear congruential generator, Numerical Recipes' constants).
pub(crate) struct Seeded(u32);

impl Seeded {
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(2_654_435_761).wrapping_add(1))
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// A number in `range`.
    pub(crate) fn size(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.next() as usize % (range.end() - range.start() + 1)
    }

    /// `len` numbers that both compute dtypes hold exactly.
    pub(crate) fn numbers(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| bf16::from_f32(self.next() as f32 / (1 << 23) as f32 - 1.0).to_f32()).collect()
    }
}

/// Owned numbers of one of the compute dtypes.
#[derive(Clone, Debug)]
pub(crate) enum Owned {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Owned {
    pub(crate) fn new(dtype: DType, numbers: &[f32]) -> Self {
        match dtype {
            DType::F32 => Self::F32(numbers.to_vec()),
            _ => Self::Bf16(numbers.iter().copied().map(bf16::from_f32).collect()),
        }
    }

    /// `[out, depth, taps]` packed for `isa`.
    pub(crate) fn packed(isa: Isa, dtype: DType, w: &[f32], out: usize, depth: usize, taps: usize) -> Self {
        let source: Vec<u8> = w.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut packed = Self::new(dtype, &vec![f32::NAN; packed_len(isa, out, depth, taps)]);
        pack(isa, &source, DType::F32, depth, taps, packed.numbers_mut());
        packed
    }

    pub(crate) fn numbers(&self) -> Numbers<'_> {
        match self {
            Self::F32(numbers) => Numbers::F32(numbers),
            Self::Bf16(numbers) => Numbers::Bf16(numbers),
        }
    }

    pub(crate) fn numbers_mut(&mut self) -> NumbersMut<'_> {
        match self {
            Self::F32(numbers) => NumbersMut::F32(numbers),
            Self::Bf16(numbers) => NumbersMut::Bf16(numbers),
        }
    }

    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::F32(numbers) => numbers.clone(),
            Self::Bf16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        }
    }

    /// The numbers' bits, for comparing runs.
    pub(crate) fn bits(&self) -> Vec<u32> {
        self.to_f32().iter().map(|number| number.to_bits()).collect()
    }
}

/// The instruction sets that this CPU has.
pub(crate) fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// Runs `f` in a pool of so many threads.
pub(crate) fn in_pool<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(f)
}

/// Scratch memory that holds NaN, so that a kernel which reads before it writes is found out.
pub(crate) fn scratch(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

/// Compares with an expected value and what rounding may make of it: `magnitude` is the sum of the terms' magnitudes.
pub(crate) fn assert_close(actual: &Owned, expected: &[(f64, f64)], what: &str) {
    let rounding = match actual {
        Owned::F32(_) => 0.0,
        Owned::Bf16(_) => 1.0 / 256.0,
    };
    let actual = actual.to_f32();
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (idx, (actual, &(expected, magnitude))) in actual.iter().zip(expected).enumerate() {
        let tolerance = 4e-6 * magnitude + rounding * expected.abs() + 1e-30;
        let error = (f64::from(*actual) - expected).abs();
        assert!(error <= tolerance, "{what}: number {idx} is {actual}, expected {expected} within {tolerance}");
    }
}

/// The convolution of channels-last `x` with `w` of `[out, in, kernel height, kernel width]`: value and magnitude.
pub(crate) fn conv2d(shape: &ConvShape, x: &[f32], w: &[f32], bias: Option<&[f32]>) -> Vec<(f64, f64)> {
    let [out_height, out_width] = shape.output().expect("an output");
    let [height, width] = shape.input;
    let [kernel_height, kernel_width] = shape.kernel;
    let mut results = Vec::new();
    for image in 0..shape.batch {
        for y in 0..out_height {
            for x_out in 0..out_width {
                for out in 0..shape.out_channels {
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[out]));
                    let (mut sum, mut magnitude) = (bias, bias.abs());
                    for ky in 0..kernel_height {
                        for kx in 0..kernel_width {
                            let sy = (y * shape.stride + ky * shape.dilation) as isize - shape.padding[0] as isize;
                            let sx = (x_out * shape.stride + kx * shape.dilation) as isize - shape.padding[2] as isize;
                            let [seen_height, seen_width] = shape.resized.map(|size| size as isize);
                            if sy < 0 || sx < 0 || sy >= seen_height || sx >= seen_width {
                                continue;
                            }
                            let sy = nearest(sy as usize, height, shape.resized[0]);
                            let sx = nearest(sx as usize, width, shape.resized[1]);
                            for c in 0..shape.in_channels {
                                let a = x[((image * height + sy) * width + sx) * shape.in_channels + c];
                                let b = w[((out * shape.in_channels + c) * kernel_height + ky) * kernel_width + kx];
                                let term = f64::from(a) * f64::from(b);
                                sum += term;
                                magnitude += term.abs();
                            }
                        }
                    }
                    results.push((sum, magnitude));
                }
            }
        }
    }
    results
}

/// Attention: value and magnitude.
pub(crate) fn attention(shape: &AttentionShape, q: &[f32], k: &[f32], v: &[f32]) -> Vec<(f64, f64)> {
    let (dim, columns) = (shape.head_dim, shape.heads * shape.head_dim);
    let mut results = vec![(0.0, 0.0); q.len()];
    for sequence in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.q_len {
                let q_start = (sequence * shape.q_len + query) * columns + head * dim;
                let kv_start = |key: usize| (sequence * shape.kv_len + key) * columns + head * dim;
                let seen = if shape.causal { shape.kv_len.min(query + 1) } else { shape.kv_len };
                let scores: Vec<f64> = (0..seen)
                    .map(|key| {
                        let dot = |d: usize| f64::from(q[q_start + d]) * f64::from(k[kv_start(key) + d]);
                        (0..dim).map(dot).sum::<f64>() * f64::from(shape.scale)
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..dim {
                    let term = |key: usize| weights[key] / sum * f64::from(v[kv_start(key) + d]);
                    let value = (0..seen).map(term).sum();
                    let magnitude: f64 = (0..seen).map(|key| term(key).abs()).sum();
                    // An error of the score is a relative error of the weight.
                    results[q_start + d] = (value, magnitude * (1.0 + largest.abs()));
                }
            }
        }
    }
    results
}

/// torch's rule for `interpolate(mode="nearest")`: `aten/src/ATen/native/UpSample.h`, `nearest_idx`, whose scale is f32.
fn nearest(idx: usize, input: usize, output: usize) -> usize {
    let scale = input as f32 / output as f32;
    ((idx as f32 * scale).floor() as usize).min(input - 1)
}
