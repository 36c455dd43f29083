//! One level of a JSON object from a hostile file.
//!
//! serde_json skips over the values without recursion and borrows them from the text, so neither deep nesting nor a
//! long value costs stack or memory. The level below is parsed by whoever knows what it has to be.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::printable::printable;

/// Why a text is no object that can be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObjectFault {
    /// It is not JSON, or no object.
    Malformed(String),
    /// It has more entries than allowed.
    TooManyEntries,
    /// It has that key twice.
    DuplicateKey(String),
}

/// The entries of the object `text`, in their order, no key twice.
pub(crate) fn object_entries(text: &str, count_max: usize) -> Result<Vec<(String, &RawValue)>, ObjectFault> {
    let mut entries = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Entries { entries: &mut entries, count_max };
    let parsed = seed.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    if entries.len() > count_max {
        return Err(ObjectFault::TooManyEntries);
    }
    parsed.map_err(|error| ObjectFault::Malformed(printable(&error.to_string())))?;
    match first_duplicate(&entries) {
        Some(key) => Err(ObjectFault::DuplicateKey(key)),
        None => Ok(entries),
    }
}

/// What serde_json has against a value that was cut out of a larger text, without its line and column, which count
/// from the start of the cut.
pub(crate) fn value_reason(error: &serde_json::Error) -> String {
    printable(without_position(&error.to_string()))
}

/// serde_json's `message` without its line and column.
pub(crate) fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(reason, _)| reason)
}

/// The key, first in alphabetical order, that occurs twice.
fn first_duplicate(entries: &[(String, &RawValue)]) -> Option<String> {
    let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned())
}

/// Collects entries outside of the value it returns, so that they can still be counted when parsing stops halfway.
struct Entries<'e, 'de> {
    entries: &'e mut Vec<(String, &'de RawValue)>,
    count_max: usize,
}

impl<'de> DeserializeSeed<'de> for Entries<'_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(entry) = map.next_entry()? {
            self.entries.push(entry);
            if self.entries.len() > self.count_max {
                return Err(A::Error::custom("too many entries"));
            }
        }
        Ok(())
    }
}
