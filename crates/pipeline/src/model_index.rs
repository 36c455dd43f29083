//! What `model_index.json` says: which pipeline the parts make.

use serde_json::Value;

/// The kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Stable Diffusion 1 and 2: one text encoder.
    StableDiffusion,
    /// Stable Diffusion XL: two text encoders, pooled text and sizes as added conditioning.
    StableDiffusionXl {
        /// Whether an empty negative prompt means zeros instead of the encoding of nothing.
        zeros_for_empty_prompt: bool,
    },
}

impl Family {
    pub(crate) fn text_encoder_count(self) -> usize {
        match self {
            Self::StableDiffusion => 1,
            Self::StableDiffusionXl { .. } => 2,
        }
    }
}

/// The parsed `model_index.json`.
#[derive(Debug)]
pub(crate) struct ModelIndex {
    pub(crate) family: Family,
    /// `_guidance_scale`, a key of ours that diffusers ignores: the guidance to draw with when none is asked for.
    pub(crate) guidance: Option<f64>,
}

/// The pipelines that are known, by their class in diffusers.
const CLASSES: [&str; 4] = [
    "StableDiffusionPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionXLPipeline",
    "StableDiffusionXLImg2ImgPipeline",
];

/// The classes that each part may have.
const PART_CLASSES: [(&str, &[&str]); 6] = [
    ("text_encoder", &["CLIPTextModel", "CLIPTextModelWithProjection"]),
    ("text_encoder_2", &["CLIPTextModelWithProjection"]),
    ("tokenizer", &["CLIPTokenizer", "CLIPTokenizerFast"]),
    ("tokenizer_2", &["CLIPTokenizer", "CLIPTokenizerFast"]),
    ("unet", &["UNet2DConditionModel"]),
    ("vae", &["AutoencoderKL"]),
];

/// Parts and options that are used, or that don't change the picture and are left alone.
const KNOWN_KEYS: [&str; 12] = [
    "scheduler",
    "text_encoder",
    "text_encoder_2",
    "tokenizer",
    "tokenizer_2",
    "unet",
    "vae",
    "force_zeros_for_empty_prompt",
    "feature_extractor",
    "safety_checker",
    "requires_safety_checker",
    "add_watermarker",
];

impl ModelIndex {
    /// Reads the file's text; the error is a sentence about what is wrong with it.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
        let object = value.as_object().ok_or("it must be an object")?;
        let class = object.get("_class_name").and_then(Value::as_str).ok_or("it has no `_class_name`")?;
        if !CLASSES.contains(&class) {
            return Err(format!(
                "the pipeline `{}` is not supported; supported are {}",
                class.escape_debug(),
                CLASSES.map(|class| format!("`{class}`")).join(", ")
            ));
        }
        for (key, part) in object {
            let is_unused = key == "image_encoder" && is_absent(part);
            if !key.starts_with('_') && !KNOWN_KEYS.contains(&key.as_str()) && !is_unused {
                return Err(format!("the part `{}` is not supported", key.escape_debug()));
            }
        }
        for (part, classes) in PART_CLASSES {
            check_class(part, object.get(part), classes)?;
        }
        let zeros_for_empty_prompt = match object.get("force_zeros_for_empty_prompt") {
            None => true,
            Some(value) => value.as_bool().ok_or("`force_zeros_for_empty_prompt` must be true or false")?,
        };
        let is_xl = class.contains("XL");
        let family = if is_xl { Family::StableDiffusionXl { zeros_for_empty_prompt } } else { Family::StableDiffusion };
        for idx in 0..family.text_encoder_count() {
            let part = if idx == 0 { "text_encoder" } else { "text_encoder_2" };
            if object.get(part).is_none_or(is_absent) {
                return Err(format!("`{class}` needs the part `{part}`, which it does not name"));
            }
        }
        let guidance = match object.get("_guidance_scale") {
            None => None,
            Some(value) => Some(value.as_f64().ok_or("`_guidance_scale` must be a number")?),
        };
        Ok(Self { family, guidance })
    }
}

/// Refuses a part of a class that is not supported. A part that is absent is its reader's to miss.
fn check_class(part: &str, value: Option<&Value>, classes: &[&str]) -> Result<(), String> {
    let Some(value) = value.filter(|value| !is_absent(value)) else { return Ok(()) };
    let class = value.get(1).and_then(Value::as_str);
    if class.is_some_and(|class| classes.contains(&class)) {
        return Ok(());
    }
    let classes = classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(" or ");
    let found = class.map_or_else(|| "no class".to_owned(), |class| format!("the class `{}`", class.escape_debug()));
    Err(format!("`{part}` has {found}; it must be {classes}"))
}

/// `null`, or diffusers' `[null, null]`.
fn is_absent(part: &Value) -> bool {
    part.is_null() || part.as_array().is_some_and(|pair| pair.iter().all(Value::is_null))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(json: &str, expected: Expect) {
        expected.assert_eq(
            &ModelIndex::parse(json)
                .map_or_else(|error| error, |index| format!("{:?} {:?}", index.family, index.guidance)),
        );
    }

    #[test]
    fn knows_the_families() {
        let sd = r#"{"_class_name": "StableDiffusionPipeline", "text_encoder": ["transformers", "CLIPTextModel"],
                     "safety_checker": [null, null], "image_encoder": [null, null], "_guidance_scale": 4}"#;
        check(sd, expect!["StableDiffusion Some(4.0)"]);
        let xl = r#"{"_class_name": "StableDiffusionXLPipeline", "text_encoder": ["t", "CLIPTextModel"],
                     "text_encoder_2": ["t", "CLIPTextModelWithProjection"], "force_zeros_for_empty_prompt": false}"#;
        check(xl, expect!["StableDiffusionXl { zeros_for_empty_prompt: false } None"]);
    }

    #[test]
    fn names_what_it_does_not_know() {
        check("[1]", expect!["it must be an object"]);
        check("{", expect!["it is not JSON: EOF while parsing an object at line 1 column 1"]);
        check("{}", expect!["it has no `_class_name`"]);
        check(
            r#"{"_class_name": "FluxPipeline"}"#,
            expect![
                "the pipeline `FluxPipeline` is not supported; supported are `StableDiffusionPipeline`, `StableDiffusionImg2ImgPipeline`, `StableDiffusionXLPipeline`, `StableDiffusionXLImg2ImgPipeline`"
            ],
        );
        check(
            r#"{"_class_name": "StableDiffusionPipeline", "image_encoder": ["a", "b"]}"#,
            expect!["the part `image_encoder` is not supported"],
        );
        check(
            r#"{"_class_name": "StableDiffusionPipeline", "text_encoder": ["t", "T5EncoderModel"]}"#,
            expect![
                "`text_encoder` has the class `T5EncoderModel`; it must be `CLIPTextModel` or `CLIPTextModelWithProjection`"
            ],
        );
        check(
            r#"{"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", 7]}"#,
            expect!["`unet` has no class; it must be `UNet2DConditionModel`"],
        );
        check(
            r#"{"_class_name": "StableDiffusionXLPipeline", "text_encoder": ["t", "CLIPTextModel"]}"#,
            expect!["`StableDiffusionXLPipeline` needs the part `text_encoder_2`, which it does not name"],
        );
    }
}
