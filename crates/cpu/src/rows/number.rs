//! The number formats of the light operations.

use half::bf16;

use crate::numbers::Numbers;

/// A stored number that is computed on as f32.
pub(super) trait Number: Copy + Send + Sync {
    /// Its value.
    fn load(self) -> f32;

    /// The nearest number of this format, ties to even.
    fn store(value: f32) -> Self;

    /// The numbers, if they are in this format.
    fn slice(numbers: Numbers<'_>) -> Option<&[Self]>;
}

impl Number for f32 {
    #[inline(always)]
    fn load(self) -> f32 {
        self
    }

    #[inline(always)]
    fn store(value: f32) -> Self {
        value
    }

    fn slice(numbers: Numbers<'_>) -> Option<&[Self]> {
        match numbers {
            Numbers::F32(numbers) => Some(numbers),
            Numbers::Bf16(_) => None,
        }
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Written without a branch, unlike `bf16::from_f32`, so that it vectorizes. NaN becomes a quiet NaN: rounding its
    /// payload up could make it an infinity.
    #[inline(always)]
    fn store(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        Self::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }

    fn slice(numbers: Numbers<'_>) -> Option<&[Self]> {
        match numbers {
            Numbers::Bf16(numbers) => Some(numbers),
            Numbers::F32(_) => None,
        }
    }
}

/// Calls `$call` with `$x` and `$y` bound to slices of one format; panics with `$op` if the formats differ.
macro_rules! same_format {
    ($op:literal, $x:ident, $y:ident => $call:expr) => {
        match ($x, $y) {
            ($crate::numbers::Numbers::F32($x), $crate::numbers::NumbersMut::F32($y)) => $call,
            ($crate::numbers::Numbers::Bf16($x), $crate::numbers::NumbersMut::Bf16($y)) => $call,
            _ => panic!("{}: input and output differ in format", $op),
        }
    };
}
pub(super) use same_format;

/// Calls `$call` with `$y` bound to the slice inside.
macro_rules! any_format {
    ($y:ident => $call:expr) => {
        match $y {
            $crate::numbers::NumbersMut::F32($y) => $call,
            $crate::numbers::NumbersMut::Bf16($y) => $call,
        }
    };
}
pub(super) use any_format;
