//! Which instruction set the kernels use: chosen once per device, by CPUID or by the environment.

use std::fmt;

use crate::simd::{Portable, WithSimd};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2::Avx2, avx512::Avx512};

/// The environment variable that overrides the choice.
pub(crate) const ISA_VARIABLE: &str = "PLIMSOLL_CPU";

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// Plain Rust, vectorized by the compiler as far as the target allows.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL and DQ.
    Avx512,
}

/// The instruction set asked for can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The name is not one of the known ones. Use one of those, or unset the variable to have the best one.
    #[error("`{ISA_VARIABLE}` is `{name}`; it must be one of `portable`, `avx2`, `avx512`, or unset")]
    Unknown {
        /// What the variable says.
        name: String,
    },
    /// This CPU does not have it. Unset the variable to have the best one it has.
    #[error("`{ISA_VARIABLE}` asks for `{name}`, which this CPU does not have; unset it or use `portable`")]
    Missing {
        /// What the variable says.
        name: String,
    },
}

impl Isa {
    /// All of them, the slowest first.
    pub(crate) const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// What `PLIMSOLL_CPU` says, or else (unset or empty) the best that this CPU has.
    ///
    /// # Errors
    /// [`IsaError`] when the variable has another value, or one that this CPU lacks.
    pub(crate) fn detect() -> Result<Self, IsaError> {
        match std::env::var_os(ISA_VARIABLE) {
            Some(name) if !name.is_empty() => Self::named(&name.to_string_lossy()),
            _ => Ok(Self::best()),
        }
    }

    /// The instruction set of that name.
    fn named(name: &str) -> Result<Self, IsaError> {
        let known = Self::ALL.into_iter().find(|isa| isa.name() == name);
        let isa = known.ok_or_else(|| IsaError::Unknown { name: name.to_owned() })?;
        if isa.is_available() { Ok(isa) } else { Err(IsaError::Missing { name: name.to_owned() }) }
    }

    /// The best that this CPU has.
    pub(crate) fn best() -> Self {
        Self::ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this CPU has it.
    #[inline]
    pub(crate) fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Its name, as `PLIMSOLL_CPU` takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Numbers in one of its vectors.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Portable | Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Rows of its matrix micro-kernel.
    pub(crate) const fn tile_rows(self) -> usize {
        match self {
            Self::Portable => 4,
            Self::Avx2 => 6,
            Self::Avx512 => 8,
        }
    }

    /// Runs `kernel`, compiled for this instruction set. Call it once per operation or task, not per vector.
    ///
    /// # Panics
    /// If this CPU lacks the instruction set: a bug of whoever chose it.
    #[inline]
    pub(crate) fn run<K: WithSimd>(self, kernel: K) -> K::Output {
        assert!(self.is_available(), "`{self}` was chosen on a CPU without it");
        match self {
            Self::Portable => kernel.run(Portable),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions, as asserted above.
            Self::Avx2 => unsafe { Avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions, as asserted above.
            Self::Avx512 => unsafe { Avx512::run(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => unreachable!("asserted above"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let error = Isa::named("AVX2 ").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`PLIMSOLL_CPU` is `AVX2 `; it must be one of `portable`, `avx2`, `avx512`, or unset"
        );
    }

    #[test]
    fn every_name_gives_its_instruction_set_or_says_that_the_cpu_lacks_it() {
        for isa in Isa::ALL {
            let expected = if isa.is_available() { Ok(isa) } else { Err(IsaError::Missing { name: isa.to_string() }) };
            assert_eq!(Isa::named(isa.name()), expected);
        }
    }

    #[test]
    fn the_best_is_available() {
        assert!(Isa::best().is_available());
    }
}
