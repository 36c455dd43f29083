//! One source, compiled once per instruction set.

use crate::isa::Isa;

/// A loop with its arguments. The body is inlined into a function compiled for the instruction set at hand, so it must
/// be marked `#[inline(always)]`, as must what it calls.
pub(super) trait Kernel {
    /// Runs the loop. `FUSED` says that [`multiply_add`] is one instruction.
    fn run<const FUSED: bool>(self);
}

/// Runs `kernel` compiled for `isa`. Call it once per operation or piece, not per vector.
///
/// # Panics
/// If this CPU lacks the instruction set: a bug of whoever chose it.
pub(super) fn run<K: Kernel>(isa: Isa, kernel: K) {
    assert!(isa.is_available(), "`{isa}` was chosen on a CPU without it");
    match isa {
        Isa::Portable => kernel.run::<false>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instructions, as asserted above.
        Isa::Avx2 => unsafe { run_avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instructions, as asserted above.
        Isa::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => unreachable!("asserted above"),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) {
    kernel.run::<true>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn run_avx512<K: Kernel>(kernel: K) {
    kernel.run::<true>();
}

/// `a * b + c`, rounded once where the instruction set has that, twice elsewhere: without the instruction,
/// [`f32::mul_add`] is a slow library call.
#[inline(always)]
pub(super) fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}
