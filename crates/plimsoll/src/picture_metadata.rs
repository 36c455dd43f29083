//! What a picture says about itself in its PNG's text chunks.
//!
//! Holds everything that shaped the picture, and nothing that did not (budget, streams, threads): the same request
//! gives the same file.

use serde::Serialize;

/// Everything that shaped one picture.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PictureMetadata {
    pub(crate) prompt: String,
    pub(crate) negative: String,
    pub(crate) model: String,
    pub(crate) steps: usize,
    pub(crate) guidance: f64,
    pub(crate) sampler: &'static str,
    pub(crate) schedule: &'static str,
    pub(crate) seed: u64,
    /// Before upscaling.
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Pictures drawn together, which share a batch of noise.
    pub(crate) count: usize,
    /// Which of them this is, from 0.
    pub(crate) picture_idx: usize,
    pub(crate) dtype: String,
    /// The file that it started from.
    pub(crate) image: Option<String>,
    pub(crate) strength: Option<f64>,
    /// The upscaler, if it was enlarged.
    pub(crate) upscaler: Option<&'static str>,
    pub(crate) version: &'static str,
}

impl PictureMetadata {
    /// The chunks: keyword and text.
    pub(crate) fn chunks(&self) -> [(&'static str, String); 2] {
        let json = serde_json::to_string(self).expect("strings and finite numbers are JSON");
        [("parameters", self.parameters()), ("plimsoll", json)]
    }

    /// The text that AUTOMATIC1111's web UI writes and many programs read.
    fn parameters(&self) -> String {
        let mut text = self.prompt.clone();
        if !self.negative.is_empty() {
            text.push_str("\nNegative prompt: ");
            text.push_str(&self.negative);
        }
        text.push_str(&format!(
            "\nSteps: {}, Sampler: {}, Schedule type: {}, CFG scale: {}, Seed: {}, Size: {}x{}, Model: {}",
            self.steps,
            self.sampler,
            self.schedule,
            self.guidance,
            self.seed,
            self.width,
            self.height,
            quoted(&self.model)
        ));
        if self.count > 1 {
            text.push_str(&format!(", Batch size: {}, Batch pos: {}", self.count, self.picture_idx));
        }
        if let Some(strength) = self.strength {
            text.push_str(&format!(", Denoising strength: {strength}"));
        }
        if let Some(upscaler) = self.upscaler {
            text.push_str(&format!(", Postprocess upscaler: {upscaler}"));
        }
        text.push_str(&format!(", Version: plimsoll {}", self.version));
        text
    }
}

/// A value of the parameters' last line, quoted as the web UI does where it would be read wrongly.
fn quoted(value: &str) -> String {
    if value.contains([',', '\n', ':']) { serde_json::Value::from(value).to_string() } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(change: impl Fn(&mut PictureMetadata), parameters: Expect) {
        let mut metadata = PictureMetadata {
            prompt: "red heart".to_owned(),
            negative: String::new(),
            model: "emoji64".to_owned(),
            steps: 20,
            guidance: 7.5,
            sampler: "ddim",
            schedule: "model",
            seed: 42,
            width: 64,
            height: 96,
            count: 1,
            picture_idx: 0,
            dtype: "f32".to_owned(),
            image: None,
            strength: None,
            upscaler: None,
            version: "0.0.0",
        };
        change(&mut metadata);
        parameters.assert_eq(&metadata.parameters());
    }

    #[test]
    fn parameters_are_what_the_web_ui_writes() {
        check(
            |_| (),
            expect![[r#"
                red heart
                Steps: 20, Sampler: ddim, Schedule type: model, CFG scale: 7.5, Seed: 42, Size: 64x96, Model: emoji64, Version: plimsoll 0.0.0"#]],
        );
        check(
            |metadata| {
                metadata.negative = "blue".to_owned();
                metadata.guidance = 4.0;
                metadata.model = "a, b".to_owned();
                metadata.count = 3;
                metadata.picture_idx = 2;
                metadata.strength = Some(0.6);
                metadata.upscaler = Some("realesr-animevideov3-x4");
            },
            expect![[r#"
                red heart
                Negative prompt: blue
                Steps: 20, Sampler: ddim, Schedule type: model, CFG scale: 4, Seed: 42, Size: 64x96, Model: "a, b", Batch size: 3, Batch pos: 2, Denoising strength: 0.6, Postprocess upscaler: realesr-animevideov3-x4, Version: plimsoll 0.0.0"#]],
        );
    }
}
