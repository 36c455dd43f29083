//! `--budget`: how many bytes a run may have at any moment.

use std::str::FromStr;

use anyhow::Context;
use plimsoll_device::ByteCount;

/// A budget as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Budget {
    /// As much as the machine has.
    Unlimited,
    /// So many bytes.
    Bytes(ByteCount),
    /// So many percent of the machine's memory; above 0, at most 100.
    Percent(f64),
}

/// The text is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetError {
    #[error("`{0}` is no budget; write bytes (3MiB), a percentage of this machine's memory (60%), or `unlimited`")]
    Unreadable(String),
    #[error("a budget of 0 holds nothing; write at least 1 byte, or `unlimited`")]
    Zero,
    #[error("`{0}` is more than the whole machine; write at most 100%, or `unlimited`")]
    MoreThanAll(String),
}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let unreadable = || BudgetError::Unreadable(text.to_owned());
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("unlimited") {
            return Ok(Self::Unlimited);
        }
        let Some(number) = trimmed.strip_suffix('%') else {
            return match trimmed.parse::<ByteCount>().map_err(|_| unreadable())? {
                ByteCount::ZERO => Err(BudgetError::Zero),
                bytes => Ok(Self::Bytes(bytes)),
            };
        };
        let is_number = number.chars().all(|c| c == '.' || c.is_ascii_digit());
        let percent: f64 = number.parse().ok().filter(|_| is_number).ok_or_else(unreadable)?;
        match percent {
            0.0 => Err(BudgetError::Zero),
            _ if percent > 100.0 => Err(BudgetError::MoreThanAll(text.to_owned())),
            _ => Ok(Self::Percent(percent)),
        }
    }
}

impl Budget {
    /// The line for the device. Where no budget is set it is the machine's memory: more could only be promised, and the
    /// system would end the program while it draws.
    ///
    /// # Errors
    /// When it is a percentage and the system does not tell how much memory there is.
    pub(crate) fn line(self) -> anyhow::Result<ByteCount> {
        Ok(match self {
            Self::Unlimited => machine_bytes().unwrap_or(ByteCount::MAX),
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => ByteCount((machine_bytes()?.0 as f64 * percent / 100.0) as u64),
        })
    }
}

/// The machine's memory, or a control group's limit on it if that is lower.
fn machine_bytes() -> anyhow::Result<ByteCount> {
    const CONTEXT: &str = "the system does not tell how much memory it has; give --budget in bytes";
    let mut system = sysinfo::System::new().context(CONTEXT)?;
    system.refresh_memory();
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    let bytes = system.total_memory().min(limit);
    anyhow::ensure!(bytes > 0, CONTEXT);
    Ok(ByteCount(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_percentages_and_no_limit() {
        for (text, budget) in [
            ("3MiB", Budget::Bytes(ByteCount::mib(3))),
            ("1", Budget::Bytes(ByteCount(1))),
            ("60%", Budget::Percent(60.0)),
            ("0.5%", Budget::Percent(0.5)),
            ("100%", Budget::Percent(100.0)),
            ("Unlimited", Budget::Unlimited),
        ] {
            assert_eq!(text.parse(), Ok(budget), "{text}");
        }
    }

    #[test]
    fn refuses_nothing_too_much_and_nonsense() {
        let line = |text: &str| text.parse::<Budget>().unwrap_err().to_string();
        let unreadable = |text: &str| {
            format!(
                "`{text}` is no budget; write bytes (3MiB), a percentage of this machine's memory (60%), or `unlimited`"
            )
        };
        for text in ["", "%", "-1", "-5%", "nan%", "inf%", "1e1%", "much", "3 apples"] {
            assert_eq!(line(text), unreadable(text));
        }
        for text in ["0", "0KiB", "0%", "0.0%"] {
            assert_eq!(line(text), "a budget of 0 holds nothing; write at least 1 byte, or `unlimited`");
        }
        assert_eq!(line("101%"), "`101%` is more than the whole machine; write at most 100%, or `unlimited`");
    }

    #[test]
    fn a_percentage_is_a_part_of_the_machine() {
        let (all, half) = (Budget::Percent(100.0).line().unwrap(), Budget::Percent(50.0).line().unwrap());
        assert!(all > ByteCount::mib(1) && half < all && half.0 >= all.0 / 2 - 1, "{all} {half}");
    }
}
