//! Gaussian noise with the bits of torch's CPU generator.
//!
//! [`TorchGenerator::randn`] returns what `torch.randn(len, generator=g)` returns for float32 on an x86-64 machine with
//! AVX2 or better (checked against torch 2.10), for every length and any sequence of calls. Three parts of torch shape
//! the bits:
//!
//! - The generator is MT19937 (Matsumoto, Nishimura 1998), seeded from the **low 32 bits** of the seed.
//! - 16 and more numbers: one 24-bit uniform per number, then the Box-Muller transform in blocks of 16 (the first
//!   eight uniforms give the radii, the last eight the angles). A length that is no multiple of 16 draws 16 further
//!   uniforms and recomputes the *last 16* numbers. Logarithm, sine and cosine are single-precision polynomials.
//! - Fewer than 16 numbers: Box-Muller in double precision, one number after another; the sine half of each pair is
//!   kept in the generator for the next number of a later small call, and large calls neither use nor clear it.
//!
//! Shapes never matter, only the element count: torch fills row-major, which for latents is `[batch, channels, height,
//! width]`. Our activations are channels-last; [`SeededNoise`](crate::SeededNoise) permutes.
//!
//! **Several pictures.** One generator draws the whole batch `[count, channels, height, width]` in one call, as ComfyUI
//! does. So picture `i` of a batch depends on the seed and on `i`, and (for latents of 16 elements and more whose
//! total is a multiple of 16: all usual sizes) not on `count`; it is *not* the picture of seed `seed + i`.

mod polynomials;

use polynomials::{log, sin_cos};

const STATE_LEN: usize = 624;
const SHIFT_LEN: usize = 397;

/// `torch.Generator("cpu").manual_seed(seed)`.
#[derive(Clone, Debug)]
pub struct TorchGenerator {
    state: [u32; STATE_LEN],
    /// The next unread word of `state`; `STATE_LEN` when all are read.
    next_idx: usize,
    /// The sine half of the last double-precision pair, if not handed out yet.
    spare: Option<f64>,
}

impl TorchGenerator {
    /// A fresh generator. Only the low 32 bits of `seed` count, as in torch.
    pub fn new(seed: u64) -> Self {
        let mut state = [0u32; STATE_LEN];
        state[0] = seed as u32;
        for idx in 1..STATE_LEN {
            let previous = state[idx - 1];
            state[idx] = (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(idx as u32);
        }
        Self { state, next_idx: STATE_LEN, spare: None }
    }

    /// The next `len` numbers of the standard normal distribution, as `torch.randn(len)` draws them.
    pub fn randn(&mut self, len: usize) -> Vec<f32> {
        if len < BLOCK_LEN {
            return (0..len).map(|_| self.normal_f64() as f32).collect();
        }
        let mut numbers: Vec<f32> = (0..len).map(|_| self.uniform_f32()).collect();
        let (blocks, rest) = numbers.as_chunks_mut::<BLOCK_LEN>();
        blocks.iter_mut().for_each(box_muller_block);
        if !rest.is_empty() {
            let last_block = numbers.last_chunk_mut::<BLOCK_LEN>().expect("at least a block was drawn");
            *last_block = std::array::from_fn(|_| self.uniform_f32());
            box_muller_block(last_block);
        }
        numbers
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next_idx == STATE_LEN {
            self.refill();
        }
        let mut bits = self.state[self.next_idx];
        self.next_idx += 1;
        bits ^= bits >> 11;
        bits ^= (bits << 7) & 0x9d2c_5680;
        bits ^= (bits << 15) & 0xefc6_0000;
        bits ^ (bits >> 18)
    }

    fn refill(&mut self) {
        for idx in 0..STATE_LEN {
            let high = self.state[idx] & 0x8000_0000;
            let low = self.state[(idx + 1) % STATE_LEN] & 0x7fff_ffff;
            let twist = if low & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[idx] = self.state[(idx + SHIFT_LEN) % STATE_LEN] ^ ((high | low) >> 1) ^ twist;
        }
        self.next_idx = 0;
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-24.
    fn uniform_f32(&mut self) -> f32 {
        (self.next_u32() & 0x00ff_ffff) as f32 * (1.0 / (1u32 << 24) as f32)
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-53. Takes two outputs, the high half first.
    fn uniform_f64(&mut self) -> f64 {
        let high = u64::from(self.next_u32()) << 32;
        let bits = high | u64::from(self.next_u32());
        (bits & ((1 << 53) - 1)) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn normal_f64(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let angle = std::f64::consts::TAU * self.uniform_f64();
        let radius = (-2.0 * (-self.uniform_f64()).ln_1p()).sqrt();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}

const BLOCK_LEN: usize = 16;
const HALF_LEN: usize = BLOCK_LEN / 2;

/// Turns 16 uniforms into 16 normals. Adding zero makes a negative zero positive, as torch's `* std + mean` does.
fn box_muller_block(block: &mut [f32; BLOCK_LEN]) {
    for idx in 0..HALF_LEN {
        let radius = (-2.0 * log(1.0 - block[idx])).sqrt();
        let (sin, cos) = sin_cos(std::f32::consts::TAU * block[idx + HALF_LEN]);
        block[idx] = radius * cos + 0.0;
        block[idx + HALF_LEN] = radius * sin + 0.0;
    }
}

/// Permutes `[batch, channels, height, width]` to `[batch, height, width, channels]`.
///
/// # Panics
/// If `nchw` doesn't have as many elements as the shape.
pub(crate) fn nchw_to_nhwc(nchw: &[f32], [batch, channels, height, width]: [usize; 4]) -> Vec<f32> {
    let pixel_count = height * width;
    assert_eq!(nchw.len(), batch * channels * pixel_count, "the shape must have as many elements as the numbers");
    let mut nhwc = Vec::with_capacity(nchw.len());
    for image_idx in 0..batch {
        let image = &nchw[image_idx * channels * pixel_count..];
        for pixel_idx in 0..pixel_count {
            nhwc.extend((0..channels).map(|channel| image[channel * pixel_count + pixel_idx]));
        }
    }
    nhwc
}
