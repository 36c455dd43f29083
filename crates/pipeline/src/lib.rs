//! Pipelines: text to image, image to image, upscale; components loaded for a phase.
