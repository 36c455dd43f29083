//! The parts that a `model_index.json` lists.

use serde_json::Value;

use crate::console::escaped;

/// A part of a model, in the folder of its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) class: String,
}

/// The parts, in the file's order. Those listed as `null` or `[null, null]` are left out, and so are options.
///
/// # Errors
/// A sentence about an entry that could be meant as a part, and does not say which.
pub(super) fn listed_parts(index: &Value, is_folder: impl Fn(&str) -> bool) -> Result<Vec<Part>, String> {
    let object = index.as_object().ok_or("it must be an object")?;
    let mut parts = Vec::new();
    for (name, value) in object.iter().filter(|(name, _)| !name.starts_with('_')) {
        let shown = escaped(name);
        match value {
            Value::Array(pair) => match pair.as_slice() {
                [Value::Null, Value::Null] => {}
                [Value::String(_), Value::String(_)] if !is_plain_name(name) => {
                    return Err(format!("`{shown}` is no name of a folder in the model's"));
                }
                [Value::String(_), Value::String(class)] => {
                    parts.push(Part { name: name.clone(), class: class.clone() });
                }
                values if values.iter().all(Value::is_number) && !is_folder(name) => {}
                _ => return Err(format!("`{shown}` must be a pair of a library and a class")),
            },
            Value::Null => {}
            _ if is_plain_name(name) && is_folder(name) => {
                return Err(format!("`{shown}` must be a pair of a library and a class"));
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// Whether a name from a file stays in its folder.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(json: &str, expected: Expect) {
        let parts = listed_parts(&serde_json::from_str(json).unwrap(), |name| name == "unet");
        let names = |parts: Vec<Part>| parts.iter().map(|part| format!("{}:{} ", part.name, part.class)).collect();
        expected.assert_eq(&parts.map_or_else(|error| error, names));
    }

    #[test]
    fn pairs_are_parts_and_other_values_options() {
        check(
            r#"{"_class_name": "P", "unet": ["d", "U"], "vae": [null, null], "a": null, "b": true, "layers": [2, 5], "c": ["l", "C"]}"#,
            expect!["unet:U c:C "],
        );
    }

    #[test]
    fn what_could_be_a_part_is_not_passed_over() {
        check("[]", expect!["it must be an object"]);
        check(r#"{"unet": 7}"#, expect!["`unet` must be a pair of a library and a class"]);
        check(r#"{"unet": [1, 2]}"#, expect!["`unet` must be a pair of a library and a class"]);
        check(r#"{"vae": ["d"]}"#, expect!["`vae` must be a pair of a library and a class"]);
        check(r#"{"vae": ["d", null]}"#, expect!["`vae` must be a pair of a library and a class"]);
        check(r#"{"../x": ["d", "U"]}"#, expect!["`../x` is no name of a folder in the model's"]);
    }
}
