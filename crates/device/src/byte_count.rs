//! A number of bytes, as a type.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::Serialize;

/// A number of bytes. Displays in binary units (`3.50 MiB`), serializes as the plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// As many bytes as can be counted: the budget of somebody who sets none.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` bytes that are known to fit in memory.
    pub const fn of(count: usize) -> Self {
        Self(count as u64)
    }

    /// `count` KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The plain number, for indexing.
    ///
    /// # Panics
    /// If it exceeds the address space, which no count of bytes in memory can.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).expect("a count of bytes in memory fits the address space")
    }

    /// The difference, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, or the largest count if it does not fit.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The sum, or `None` if it does not fit.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Rounded up to a multiple of `alignment`, a power of two.
    pub const fn align_up(self, alignment: u64) -> Self {
        Self(self.0.saturating_add(alignment - 1) & !(alignment - 1))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if *self == Self::MAX {
            return f.pad("unlimited");
        }
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit_idx = 0;
        while value >= 1024.0 && unit_idx + 1 < UNITS.len() {
            value /= 1024.0;
            unit_idx += 1;
        }
        f.pad(&format!("{value:.2} {}", UNITS[unit_idx]))
    }
}

/// The text is not a number of bytes. Write a number and a unit: `3MiB`, `1.5GB`, `4096`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a number of bytes; write for example 4096, 3MiB or 1.5GB")]
pub struct ParseByteCountError {
    text: String,
}

impl FromStr for ByteCount {
    type Err = ParseByteCountError;

    /// Reads `4096`, `64KiB`, `3 MiB`, `1.5GB` (units of any case; `K`, `M`, `G`, `T` alone are binary).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteCountError { text: text.to_owned() };
        let trimmed = text.trim();
        let unit_start = trimmed.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_start);
        let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(error()),
        };
        let bytes = number.parse::<f64>().map_err(|_| error())? * scale;
        if !bytes.is_finite() || bytes >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Self(bytes as u64))
    }
}

impl Add for ByteCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for ByteCount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for ByteCount {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for ByteCount {
    type Output = Self;

    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

impl Sum for ByteCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64KiB", 64 << 10),
            (" 3 MiB ", 3 << 20),
            ("1.5GB", 1_500_000_000),
            ("2g", 2 << 30),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_number_of_bytes() {
        for text in ["", "MiB", "-1", "1e3", "3 apples", "1.2.3GB", "99999999999TB", "nan"] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }

    #[test]
    fn displays_in_binary_units() {
        let shown = [0, 1023, 1024, 3 << 20, u64::MAX].map(|bytes| ByteCount(bytes).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.00 KiB", "3.00 MiB", "unlimited"]);
    }
}
