//! A simulated device as text: `sim:vram=8GiB,link=25GB/s,flops=80T`.

use std::str::FromStr;
use std::time::Duration;

use plimsoll_device::ByteCount;

use crate::SimOptions;
use crate::device::KIND;

/// The text describes no simulated device.
///
/// It is `sim:` and then keys with values, in any order, separated by commas: `vram` (bytes), `link` (bytes a second) and
/// `flops` (floating-point operations a second) are needed; `latency` (of a copy) and `seed` are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSimError {
    /// It is something else.
    #[error("`{text}` is not a simulated device; write for example {EXAMPLE}")]
    NotSim {
        /// What was given.
        text: String,
    },
    /// A part is not `key=value`, or its key is not known.
    #[error("`{part}` is nothing a simulated device has; known are {KEYS}, for example {EXAMPLE}")]
    UnknownKey {
        /// What was given.
        part: String,
    },
    /// A key is given twice. Keep one.
    #[error("`{key}` is given twice; keep one")]
    RepeatedKey {
        /// The key.
        key: &'static str,
    },
    /// A key is needed and not given.
    #[error("`{key}` is missing; write for example {EXAMPLE}")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value can't be read, or is nothing a device can have.
    #[error("`{value}` is no value of `{key}`; write {expected}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What to write.
        expected: &'static str,
    },
}

const EXAMPLE: &str = "sim:vram=8GiB,link=25GB/s,flops=80T";
const KEYS: &str = "vram, link, flops, latency, seed";

/// The most that is believed of a device: more bytes, or operations a second, than any machine has.
const RATE_MAX: f64 = 1e21;

#[derive(Default)]
struct Given {
    vram: Option<ByteCount>,
    link: Option<f64>,
    flops: Option<f64>,
    latency: Option<Duration>,
    seed: Option<u64>,
}

impl FromStr for SimOptions {
    type Err = ParseSimError;

    fn from_str(text: &str) -> Result<Self, ParseSimError> {
        let not_sim = || ParseSimError::NotSim { text: text.to_owned() };
        let (kind, parts) = text.trim().split_once(':').ok_or_else(not_sim)?;
        if kind != KIND {
            return Err(not_sim());
        }
        let mut given = Given::default();
        for part in parts.split(',').map(str::trim) {
            let unknown = || ParseSimError::UnknownKey { part: part.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let value = value.trim();
            match key.trim() {
                "vram" => set("vram", &mut given.vram, value, vram, "bytes above 0, for example 8GiB")?,
                "link" => set("link", &mut given.link, value, link, "bytes a second above 0, for example 25GB/s")?,
                "flops" => {
                    set("flops", &mut given.flops, value, flops, "a rate above 0, for example 80T or 80TFLOP/s")?
                }
                "latency" => set("latency", &mut given.latency, value, latency, "a time up to 1s, for example 15us")?,
                "seed" => set("seed", &mut given.seed, value, |value| value.parse().ok(), "a whole number from 0 on")?,
                _ => return Err(unknown()),
            }
        }
        let default = Self::default();
        Ok(Self {
            memory: given.vram.ok_or(ParseSimError::MissingKey { key: "vram" })?,
            link_bytes_per_second: given.link.ok_or(ParseSimError::MissingKey { key: "link" })?,
            flops_per_second: given.flops.ok_or(ParseSimError::MissingKey { key: "flops" })?,
            link_latency: given.latency.unwrap_or(default.link_latency),
            seed: given.seed.unwrap_or(default.seed),
            ..default
        })
    }
}

fn set<T>(
    key: &'static str,
    slot: &mut Option<T>,
    value: &str,
    read: impl Fn(&str) -> Option<T>,
    expected: &'static str,
) -> Result<(), ParseSimError> {
    let read = read(value).ok_or_else(|| ParseSimError::BadValue { key, value: value.to_owned(), expected })?;
    if slot.replace(read).is_some() {
        return Err(ParseSimError::RepeatedKey { key });
    }
    Ok(())
}

fn vram(value: &str) -> Option<ByteCount> {
    value.parse().ok().filter(|&bytes: &ByteCount| bytes > ByteCount::ZERO)
}

/// `25GB/s`, `24 GiB/s`, `900MB/s`.
fn link(value: &str) -> Option<f64> {
    let bytes = value.strip_suffix("/s").filter(|bytes| bytes.ends_with(['B', 'b']))?;
    let bytes: ByteCount = bytes.parse().ok()?;
    (bytes > ByteCount::ZERO).then_some(bytes.0 as f64)
}

/// `80T`, `80TFLOP/s`, `500 GFLOPS`.
fn flops(value: &str) -> Option<f64> {
    let (number, unit) = number_and_unit(value)?;
    let scale = match unit.trim_end_matches("FLOP/s").trim_end_matches("FLOPS") {
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        _ => return None,
    };
    Some(number * scale).filter(|rate| (1.0..RATE_MAX).contains(rate))
}

fn latency(value: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(value)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * scale).ok().filter(|&latency| latency <= Duration::from_secs(1))
}

/// A plain decimal number, finite and not negative, and what follows it.
fn number_and_unit(value: &str) -> Option<(f64, &str)> {
    let unit_start = value.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = value.split_at(unit_start);
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_command_line_gives() {
        let options: SimOptions = "sim:vram=8GiB,link=25GB/s,flops=80T".parse().unwrap();
        assert_eq!(options, SimOptions { memory: ByteCount::mib(8192), ..SimOptions::default() });
        let options: SimOptions =
            " sim: flops = 500 GFLOP/s , seed=7, latency=0us, link=12.5 MiB/s,vram=512 MB ".parse().unwrap();
        let expected = SimOptions {
            memory: ByteCount(512_000_000),
            link_bytes_per_second: 12.5 * 1024.0 * 1024.0,
            flops_per_second: 500e9,
            link_latency: Duration::ZERO,
            seed: 7,
            ..SimOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn refuses_what_no_device_has() {
        let good = [("vram", "8GiB"), ("link", "25GB/s"), ("flops", "80T")];
        let bad = [
            ("vram", &["", "0", "-1GiB", "nan", "inf", "8 apples", "99999999TiB"][..]),
            ("link", &["", "0GB/s", "25", "25GB", "25G/s", "-25GB/s", "nanGB/s", "infGB/s", "25/s", "0.1B/s"][..]),
            (
                "flops",
                &["", "0T", "80", "-80T", "nanT", "infT", "1e3T", "80X", "9999999999999999T", "0.0000000000001G"][..],
            ),
            ("latency", &["", "15", "-1us", "2s", "nans", "15 min"][..]),
            ("seed", &["", "-1", "1.5", "99999999999999999999"][..]),
        ];
        for (key, values) in bad {
            for value in values {
                let others =
                    good.iter().filter(|(other, _)| *other != key).map(|(key, value)| format!("{key}={value}"));
                let parts: Vec<String> = others.chain([format!("{key}={value}")]).collect();
                let error = format!("sim:{}", parts.join(",")).parse::<SimOptions>().unwrap_err();
                assert!(
                    matches!(error, ParseSimError::BadValue { key: at, .. } if at == key),
                    "{key}={value}: {error}"
                );
            }
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, error) in [
            ("cpu", "`cpu` is not a simulated device; write for example sim:vram=8GiB,link=25GB/s,flops=80T"),
            ("cuda:0", "`cuda:0` is not a simulated device; write for example sim:vram=8GiB,link=25GB/s,flops=80T"),
            (
                "sim:vram=1G,ram=2G",
                "`ram=2G` is nothing a simulated device has; known are vram, link, flops, latency, seed, for example sim:vram=8GiB,link=25GB/s,flops=80T",
            ),
            (
                "sim:",
                "`` is nothing a simulated device has; known are vram, link, flops, latency, seed, for example sim:vram=8GiB,link=25GB/s,flops=80T",
            ),
            ("sim:vram=1G,vram=1G", "`vram` is given twice; keep one"),
            ("sim:vram=1G,flops=1T", "`link` is missing; write for example sim:vram=8GiB,link=25GB/s,flops=80T"),
            ("sim:vram=0", "`0` is no value of `vram`; write bytes above 0, for example 8GiB"),
        ] {
            assert_eq!(text.parse::<SimOptions>().unwrap_err().to_string(), error);
        }
    }
}
