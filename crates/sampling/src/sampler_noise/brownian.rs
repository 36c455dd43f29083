//! Noise of one Brownian motion over all sigmas, so that runs with other step counts see the same motion.
//!
//! The increments of torchsde 0.2.6's `BrownianTree` (Li et al. 2020, "Scalable Gradients for Stochastic Differential
//! Equations") over sigma as time, divided by the root of the time they span: what k-diffusion's Brownian tree noise
//! sampler, and so ComfyUI, gives `dpmpp_2m_sde`. Equal bits for equal f32 sigmas. ComfyUI's own sigmas are rounded
//! differently from ours (some 1e-6), which moves the noise by some 1e-3.
//!
//! An interval of the tree is split at its midpoint, again and again, until the ends of a query are ends of intervals;
//! times are rounded to six decimals, so the depth is that of 1e-6 in the whole. The increment over the left half is
//! normal given that over the whole (a Brownian bridge), from a seed of its own; nothing has to be remembered.

use super::NoiseSource;
use super::seed_sequence::first_word;
use crate::noise::{TorchGenerator, nchw_to_nhwc};

/// A Brownian motion's increments as noise.
#[derive(Clone, Debug)]
pub(super) struct BrownianNoise {
    seed: u64,
    shape: [usize; 4],
    sigma_min: f32,
    sigma_max: f32,
}

impl BrownianNoise {
    /// The motion of that seed between the smallest sigma above 0 and the largest, for latents of
    /// `[batch, channels, height, width]`.
    pub(super) fn new(seed: u64, shape: [usize; 4], sigma_min: f64, sigma_max: f64) -> Self {
        Self { seed, shape, sigma_min: sigma_min as f32, sigma_max: sigma_max as f32 }
    }

    /// The increment from `start` to `end`, in torch's layout.
    fn increment(&self, start: f32, end: f32) -> Vec<f32> {
        let (tree_start, tree_end) = (f64::from(self.sigma_min), f64::from(self.sigma_max));
        let root = Interval { start: rounded(tree_start), end: rounded(tree_end), key: 0, depth: 0 };
        let query = (
            rounded(f64::from(start).clamp(root.start, root.end)),
            rounded(f64::from(end).clamp(root.start, root.end)),
        );
        let mut sum = vec![0.0; self.shape.iter().product()];
        if query.0 < query.1 {
            let scale = (tree_end - tree_start).sqrt() as f32;
            let whole = self.randn(first_word(self.seed, &[])).into_iter().map(|noise| noise * scale).collect();
            self.add_increment(&root, whole, query, &mut sum);
        }
        sum
    }

    /// Adds the increment over the part of the query within `interval`, whose own increment is `whole`.
    fn add_increment(&self, interval: &Interval, whole: Vec<f32>, query: (f64, f64), sum: &mut [f32]) {
        if query.0 <= interval.start && interval.end <= query.1 {
            sum.iter_mut().zip(whole).for_each(|(sum, increment)| *sum += increment);
            return;
        }
        let (left, right) = interval.halves();
        let inverse_length = 1.0 / (interval.end - interval.start);
        let (left_length, right_length) = (left.end - left.start, right.end - right.start);
        let deviation = (left_length * right_length * inverse_length).sqrt() as f32;
        let noise = self.randn(first_word(self.seed, &[interval.key, interval.depth]));
        let on_left = |(whole, noise): (&f32, f32)| {
            let mean = left_length as f32 * whole * inverse_length as f32;
            mean + deviation * noise
        };
        let left_increment: Vec<f32> = whole.iter().zip(noise).map(on_left).collect();
        let reaches_left = query.0 < left.end;
        if right.start < query.1 {
            let right_increment = whole.iter().zip(&left_increment).map(|(whole, left)| whole - left).collect();
            if reaches_left {
                self.add_increment(&left, left_increment, query, sum);
            }
            self.add_increment(&right, right_increment, query, sum);
        } else {
            self.add_increment(&left, left_increment, query, sum);
        }
    }

    fn randn(&self, seed: u32) -> Vec<f32> {
        TorchGenerator::new(u64::from(seed)).randn(self.shape.iter().product())
    }
}

impl NoiseSource for BrownianNoise {
    fn next(&mut self, sigma_from: f64, sigma_to: f64) -> Vec<f32> {
        let (from, to) = (sigma_from as f32, sigma_to as f32);
        let scale = (to - from).abs().sqrt();
        // Sigma falls along a run: time runs backwards, and increments change their sign.
        let noise: Vec<f32> = self.increment(to, from).into_iter().map(|increment| -increment / scale).collect();
        nchw_to_nhwc(&noise, self.shape)
    }
}

/// A node of the tree.
struct Interval {
    start: f64,
    end: f64,
    /// The path from the root: one bit for each level, 1 for right.
    key: u64,
    depth: u64,
}

impl Interval {
    fn halves(&self) -> (Self, Self) {
        let midpoint = rounded(0.5 * (self.end + self.start));
        let depth = self.depth + 1;
        (
            Self { start: self.start, end: midpoint, key: 2 * self.key, depth },
            Self { start: midpoint, end: self.end, key: 2 * self.key + 1, depth },
        )
    }
}

/// Rounded to six decimals, the nearest f64 to that decimal (Python's `round(time, 6)`).
fn rounded(time: f64) -> f64 {
    format!("{time:.6}").parse().expect("a formatted number is one")
}
