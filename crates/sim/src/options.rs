//! What a simulated device is like.

use std::time::Duration;

use plimsoll_device::ByteCount;

use crate::Faults;

/// What a simulated device is like. The default is a card with 8 GiB behind a link of 25 GB/s, at 80 TFLOP/s, on which
/// nothing goes wrong.
///
/// Reads from text as [`ParseSimError`](crate::ParseSimError) describes: `sim:vram=8GiB,link=25GB/s,flops=80T`.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// Its number among simulated devices; it also gives devices of one seed different chances.
    pub index: usize,
    /// Bytes it has.
    pub memory: ByteCount,
    /// The line in its ledger; none for all of `memory`.
    pub budget: Option<ByteCount>,
    /// Rate of its copy engine. Above 0.
    pub link_bytes_per_second: f64,
    /// What each copy takes besides.
    pub link_latency: Duration,
    /// Rate of its compute engine. Above 0.
    pub flops_per_second: f64,
    /// Rate at which kernels read and write memory: a kernel takes at least its bytes at this rate. Above 0; none for
    /// kernels that take their floating-point operations only, so that an operation without any takes no time.
    pub memory_bytes_per_second: Option<f64>,
    /// What allocations are rounded up to: a power of two, at least 64.
    pub allocation_unit: ByteCount,
    /// How much durations vary: by a factor in `[1 - jitter, 1 + jitter]`. At least 0, below 1.
    pub jitter: f64,
    /// Whether contents are simulated. Uploads read their sources then, and can fail by them; else sources are not read.
    pub contents: bool,
    /// Whether what runs is written down.
    pub trace: bool,
    /// How often things go wrong.
    pub faults: Faults,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            index: 0,
            memory: ByteCount::mib(8 << 10),
            budget: None,
            link_bytes_per_second: 25e9,
            link_latency: Duration::from_micros(15),
            flops_per_second: 80e12,
            memory_bytes_per_second: None,
            allocation_unit: ByteCount(64),
            jitter: 0.0,
            contents: false,
            trace: false,
            faults: Faults::default(),
            seed: 0,
        }
    }
}

impl SimOptions {
    pub(crate) fn assert_sound(&self) {
        let Self { link_bytes_per_second, flops_per_second, memory_bytes_per_second, allocation_unit, jitter, .. } =
            self;
        let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
        assert!(is_rate(*link_bytes_per_second), "a link of {link_bytes_per_second} bytes/s");
        assert!(is_rate(*flops_per_second), "a device of {flops_per_second} FLOP/s");
        assert!(memory_bytes_per_second.is_none_or(is_rate), "memory of {memory_bytes_per_second:?} bytes/s");
        assert!(
            allocation_unit.0.is_power_of_two() && allocation_unit.0 >= 64,
            "an allocation unit of {allocation_unit}"
        );
        assert!((0.0..1.0).contains(jitter), "durations that vary by a factor of 1 +- {jitter}");
    }
}
