//! The command line's wishes and the model's defaults, joined to a request.

use plimsoll_pipeline::{Defaults, Image, Request, StartImage};

use crate::args::GenerateArgs;

/// How much of a start picture is drawn anew when nobody says: diffusers' value.
const STRENGTH: f64 = 0.8;

/// What `args` asks of a model with these defaults, with a seed and perhaps a picture to start from.
pub(crate) fn request(args: &GenerateArgs, defaults: &Defaults, seed: u64, start: Option<Image>) -> Request {
    let (width, height) = match &start {
        Some(image) => (image.width(), image.height()),
        None => (defaults.width, defaults.height),
    };
    Request {
        prompt: args.prompt.clone(),
        negative: args.negative.clone(),
        steps: args.steps.unwrap_or(defaults.steps),
        guidance: args.guidance.unwrap_or(defaults.guidance),
        sampler: args.sampler.unwrap_or(defaults.sampler),
        schedule: args.schedule.unwrap_or(defaults.schedule),
        seed,
        width: args.width.unwrap_or(width),
        height: args.height.unwrap_or(height),
        count: args.count,
        image: start.map(|image| StartImage { image, strength: args.strength.unwrap_or(STRENGTH) }),
    }
}
