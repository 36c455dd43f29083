//! Reading a model's config.json, field by field.
//!
//! Every field that the writing library knows is asked for by name; what is left over in the end is unknown, and an
//! error. So a model can't silently be something else than its config says.

use std::collections::BTreeMap;
use std::fmt::Display;

use plimsoll_weights::printable;
use serde_json::Value;

/// Configs are a few KiB; this is far above any that makes sense.
const JSON_BYTES_MAX: usize = 1 << 20;
/// How much of a value an error shows.
const SHOWN_CHARS_MAX: usize = 80;

/// A config.json does not describe a model that can be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no JSON object. Replace the file with the one the model was published with.
    #[error("the {model} config can't be read: {reason}")]
    NoObject {
        /// Which model's config.
        model: &'static str,
        /// What is wrong with the text.
        reason: String,
    },
    /// A field is well known, but not with this value. The model is of a kind that isn't built here, or the value is
    /// damaged.
    #[error("in the {model} config, `{field}` is `{value}`, but it must be {supported}")]
    Unsupported {
        /// Which model's config.
        model: &'static str,
        /// The field.
        field: String,
        /// Its value, as JSON.
        value: String,
        /// What it may be.
        supported: String,
    },
    /// Fields that the writing library doesn't write. The config was made by a newer version or for another model; if
    /// the field has no meaning for the model, remove it.
    #[error("the {model} config has an unknown field `{field}` with the value `{value}`; the known ones are {known}")]
    UnknownField {
        /// Which model's config.
        model: &'static str,
        /// The field.
        field: String,
        /// Its value, as JSON.
        value: String,
        /// All known fields.
        known: String,
    },
}

/// The fields of one config that have not been asked for yet.
pub(crate) struct Fields {
    model: &'static str,
    left: BTreeMap<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Takes a config apart. Fields whose names start with `_` are the library's own notes and left out.
    pub(crate) fn parse(model: &'static str, json: &str) -> Result<Self, ConfigError> {
        let error = |reason: String| ConfigError::NoObject { model, reason };
        if json.len() > JSON_BYTES_MAX {
            return Err(error(format!("it has {} bytes, more than {JSON_BYTES_MAX}", json.len())));
        }
        match serde_json::from_str(json).map_err(|source| error(source.to_string()))? {
            Value::Object(fields) => Ok(Self { model, left: fields.into_iter().collect(), known: Vec::new() }),
            other => Err(error(format!("it is `{}`, not an object", shown(&other)))),
        }
    }

    /// Refuses a config written by another class of the library.
    pub(crate) fn expect_class(&self, class: &str) -> Result<(), ConfigError> {
        match self.left.get("_class_name") {
            None => Ok(()),
            Some(name) if name.as_str() == Some(class) => Ok(()),
            Some(name) => Err(self.unsupported("_class_name", name, format!("`{class}`"))),
        }
    }

    /// The value as it stands; none if it is absent or null.
    pub(crate) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.left.remove(field).filter(|value| !value.is_null())
    }

    /// The value as it stands, left to be asked for.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.left.get(field)
    }

    /// Accepts any value: the field doesn't change what the model computes.
    pub(crate) fn without_effect(&mut self, fields: &[&'static str]) {
        for field in fields {
            self.take(field);
        }
    }

    /// Accepts only absence or one of `values`: all else is a kind of model that isn't built here.
    pub(crate) fn only(&mut self, field: &'static str, values: &[Value]) -> Result<(), ConfigError> {
        match self.take(field) {
            None => Ok(()),
            // `1` and `1.0` are the same number to the library.
            Some(value) if values.iter().any(|known| *known == value || same_number(known, &value)) => Ok(()),
            Some(value) => {
                let values = values.iter().map(|value| format!("`{}`", shown(value)));
                let supported = values.chain(["null".to_owned()]).collect::<Vec<_>>().join(" or ");
                Err(self.unsupported(field, &value, supported))
            }
        }
    }

    /// A whole number from 1 to `max`, if present.
    pub(crate) fn optional_count(&mut self, field: &'static str, max: usize) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        match count(&value, 1, max) {
            Some(count) => Ok(Some(count)),
            None => Err(self.unsupported(field, &value, format!("a whole number from 1 to {max}"))),
        }
    }

    /// A whole number from 1 to `max`.
    pub(crate) fn count(&mut self, field: &'static str, default: usize, max: usize) -> Result<usize, ConfigError> {
        Ok(self.optional_count(field, max)?.unwrap_or(default))
    }

    /// A list of whole numbers from 1 to `max`, at least one of them.
    pub(crate) fn counts(
        &mut self,
        field: &'static str,
        default: &[usize],
        max: usize,
        len_max: usize,
    ) -> Result<Vec<usize>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(default.to_vec()) };
        let list = value.as_array().filter(|list| (1..=len_max).contains(&list.len()));
        match list.and_then(|list| list.iter().map(|value| count(value, 1, max)).collect()) {
            Some(counts) => Ok(counts),
            None => {
                let supported = format!("a list of 1 to {len_max} whole numbers from 1 to {max}");
                Err(self.unsupported(field, &value, supported))
            }
        }
    }

    /// A whole number from 1 to `max` for each of `block_count` blocks, given once for all or as a list; none if absent.
    pub(crate) fn counts_per_block(
        &mut self,
        field: &'static str,
        block_count: usize,
        max: usize,
    ) -> Result<Option<Vec<usize>>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let counts = match &value {
            Value::Array(list) if list.len() == block_count => list.iter().map(|value| count(value, 1, max)).collect(),
            Value::Array(_) => None,
            value => count(value, 1, max).map(|count| vec![count; block_count]),
        };
        match counts {
            Some(counts) => Ok(Some(counts)),
            None => {
                let supported = format!("a whole number from 1 to {max}, or a list of {block_count} of them");
                Err(self.unsupported(field, &value, supported))
            }
        }
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, field: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.take(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(value) => Err(self.unsupported(field, &value, "true or false".to_owned())),
        }
    }

    /// A number that `fits`; `supported` says which do.
    pub(crate) fn number(
        &mut self,
        field: &'static str,
        default: f64,
        fits: impl Fn(f64) -> bool,
        supported: &str,
    ) -> Result<f64, ConfigError> {
        match self.take(field) {
            None => Ok(default),
            Some(value) => match value.as_f64().filter(|number| number.is_finite() && fits(*number)) {
                Some(number) => Ok(number),
                None => Err(self.unsupported(field, &value, supported.to_owned())),
            },
        }
    }

    /// A list of `len` finite numbers, if present.
    pub(crate) fn numbers(&mut self, field: &'static str, len: usize) -> Result<Option<Vec<f64>>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let list = value.as_array().filter(|list| list.len() == len);
        let finite = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        match list.and_then(|list| list.iter().map(finite).collect()) {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(self.unsupported(field, &value, format!("a list of {len} numbers"))),
        }
    }

    /// One of the choices by name.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        field: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(default) };
        match choice(&value, choices) {
            Some(choice) => Ok(choice),
            None => Err(self.unsupported(field, &value, names(choices))),
        }
    }

    /// A list of choices by name, one for each of `block_count` blocks if that is known.
    pub(crate) fn choices<T: Copy>(
        &mut self,
        field: &'static str,
        default: &[T],
        choices: &[(&str, T)],
        block_count: usize,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(value) = self.take(field) else {
            return if default.len() == block_count {
                Ok(default.to_vec())
            } else {
                Err(self.unsupported(field, &Value::Null, format!("a list of {block_count} of {}", names(choices))))
            };
        };
        let list = value.as_array().filter(|list| list.len() == block_count);
        match list.and_then(|list| list.iter().map(|value| choice(value, choices)).collect()) {
            Some(chosen) => Ok(chosen),
            None => Err(self.unsupported(field, &value, format!("a list of {block_count} of {}", names(choices)))),
        }
    }

    /// An error about a value.
    pub(crate) fn unsupported(&self, field: impl Display, value: &Value, supported: String) -> ConfigError {
        ConfigError::Unsupported { model: self.model, field: field.to_string(), value: shown(value), supported }
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(mut self) -> Result<(), ConfigError> {
        self.known.sort_unstable();
        match self.left.into_iter().find(|(field, _)| !field.starts_with('_')) {
            None => Ok(()),
            Some((field, value)) => Err(ConfigError::UnknownField {
                model: self.model,
                field: printable(&field),
                value: shown(&value),
                known: self.known.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

/// A whole number from `min` to `max`.
pub(crate) fn count(value: &Value, min: usize, max: usize) -> Option<usize> {
    let count = usize::try_from(value.as_u64()?).ok()?;
    (min..=max).contains(&count).then_some(count)
}

fn same_number(a: &Value, b: &Value) -> bool {
    matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

fn choice<T: Copy>(value: &Value, choices: &[(&str, T)]) -> Option<T> {
    let name = value.as_str()?;
    choices.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice)
}

fn names<T>(choices: &[(&str, T)]) -> String {
    choices.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// A value for an error: its JSON, fit to print and cut to a readable length.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => printable(&text),
        Some((end, _)) => printable(&text[..end]) + "…",
    }
}
