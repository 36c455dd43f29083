//! The shapes of Stable Diffusion's UNets: the model's own code, built without a checkpoint and rehearsed.

use std::sync::Arc;

use plimsoll_device::{ByteCount, Device};
use plimsoll_models::unet::{AddedInput, Unet, UnetConfig, UnetError, UnetInput};
use plimsoll_nn::{Builder, Run};
use plimsoll_residency::{LoadRequest, Manager, ManagerOptions, PatchSet, Unit, Wanted};
use plimsoll_tensor::Compute;

use super::shape::Shape;
use super::workload::{Demand, Workload};
use crate::failure::Failure;

/// The unconditional prompt and the conditional one.
const PROMPTS: usize = 2;
const TOKENS: usize = 77;
const LATENT_PIXELS: usize = 8;
/// Numbers about the picture that an XL model is told.
const TIME_IDS: usize = 6;

/// What a UNet is.
pub(super) struct UnetShape {
    title: &'static str,
    config: &'static str,
    /// Numbers of a token of the text.
    context_width: usize,
    /// Numbers of the pooled text, for an XL model.
    pooled_width: Option<usize>,
}

/// Source of the configuration: stable-diffusion-v1-5/stable-diffusion-v1-5, unet/config.json.
pub(super) const SD15: UnetShape = UnetShape {
    title: "Stable Diffusion 1.5's UNet",
    config: r#"{
        "_class_name": "UNet2DConditionModel",
        "in_channels": 4,
        "out_channels": 4,
        "sample_size": 64,
        "block_out_channels": [320, 640, 1280, 1280],
        "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
        "layers_per_block": 2,
        "attention_head_dim": 8,
        "cross_attention_dim": 768
    }"#,
    context_width: 768,
    pooled_width: None,
};

/// Source of the configuration: stabilityai/stable-diffusion-xl-base-1.0, unet/config.json.
pub(super) const SDXL: UnetShape = UnetShape {
    title: "Stable Diffusion XL's UNet",
    config: r#"{
        "_class_name": "UNet2DConditionModel",
        "in_channels": 4,
        "out_channels": 4,
        "sample_size": 128,
        "block_out_channels": [320, 640, 1280],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "layers_per_block": 2,
        "transformer_layers_per_block": [1, 2, 10],
        "attention_head_dim": [5, 10, 20],
        "cross_attention_dim": 2048,
        "use_linear_projection": true,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816
    }"#,
    context_width: 2048,
    pooled_width: Some(1280),
};

/// A prediction for two prompts.
///
/// # Errors
/// [`Failure::Usage`] for a size that the model can't be run at.
pub(super) fn workload(
    shape: Shape,
    unet: &UnetShape,
    [width, height]: [usize; 2],
    demand: &Demand<'_>,
) -> Result<Workload, Failure> {
    let device = demand.yardstick();
    let (model, units) = unet.build(&*device, demand);
    let latent = [height / LATENT_PIXELS, width / LATENT_PIXELS];
    let rehearsed = rehearse(&*device, &units, |run| unet.predict(&model, run, latent, demand));
    let Rehearsed { seconds, activation_bytes } = rehearsed.map_err(Failure::usage)?;
    Ok(Workload {
        name: format!("shape:{}", shape.name()),
        about: format!(
            "{} at {width} x {height}, {PROMPTS} prompts of {TOKENS} tokens, in {}",
            unet.title, demand.dtype
        ),
        component: "unet",
        units,
        seconds: demand.on_card(seconds),
        activation_bytes,
        activation_source: "counted in a rehearsal of the UNet".to_owned(),
    })
}

impl UnetShape {
    fn build(&self, device: &dyn Device, demand: &Demand<'_>) -> (Unet, Vec<Unit>) {
        let config = UnetConfig::parse(self.config).expect("the configuration is that of a UNet");
        let builder = Builder::blank(device, demand.dtype);
        let model = Unet::build(&builder, &config).expect("every tensor is there");
        let units = builder.finish(|_| false).expect("no tensor is left over");
        (model, units)
    }

    fn predict(
        &self,
        model: &Unet,
        run: &Run<'_>,
        [height, width]: [usize; 2],
        demand: &Demand<'_>,
    ) -> Result<(), UnetError> {
        let blank = |shape: &[usize]| run.cx.upload(&vec![0.0; shape.iter().product()], shape, demand.dtype);
        let sample = blank(&[PROMPTS, height, width, 4])?;
        let text = blank(&[PROMPTS, TOKENS, self.context_width])?;
        let pooled = self.pooled_width.map(|width| blank(&[PROMPTS, width])).transpose()?;
        let time_ids = [0.0; PROMPTS * TIME_IDS];
        let added = pooled.as_ref().map(|pooled| AddedInput { text_embeds: pooled, time_ids: &time_ids });
        let timesteps = &[0.0; PROMPTS];
        model.forward(run, &UnetInput { sample: &sample, timesteps, encoder_hidden_states: &text, added }).map(drop)
    }
}

struct Rehearsed {
    /// In the rehearsal's own pace.
    seconds: Vec<f64>,
    activation_bytes: ByteCount,
}

/// Runs `pass` with all units resident where it computes nothing.
fn rehearse(
    device: &dyn Device,
    units: &[Unit],
    pass: impl FnOnce(&Run<'_>) -> Result<(), UnetError>,
) -> Result<Rehearsed, UnetError> {
    let device = device.rehearsal();
    let manager = Manager::new(&device, ManagerOptions::default());
    let component = manager.add("unet", units.to_vec());
    let patches = Arc::new(PatchSet::default());
    let wanted = [Wanted { component: &component, patches: &patches, passes: 1 }];
    let request = LoadRequest { holder: "rehearsal", wanted: &wanted, activation_bytes: ByteCount::ZERO };
    let _loaded = manager.load(&request).expect("a rehearsal has no budget");
    pass(&Run { cx: &Compute::new(device.clone(), "activations"), weights: &component })?;
    Ok(Rehearsed { seconds: component.compute_seconds(), activation_bytes: device.ledger().arena_peak() })
}

#[cfg(test)]
mod tests {
    use plimsoll_device::DType;
    use plimsoll_sim::SimOptions;

    use super::*;

    /// The parameters that diffusers counts in these two UNets.
    #[test]
    fn the_shapes_have_their_parameters() {
        let card = SimOptions::default();
        let demand = Demand { width: None, height: None, dtype: DType::BF16, card: &card };
        for (shape, parameters) in [(SD15, 859_520_964), (SDXL, 2_567_463_684)] {
            let (_, units) = shape.build(&*demand.yardstick(), &demand);
            let pieces = units.iter().flat_map(|unit| &unit.upload.pieces);
            assert_eq!(pieces.map(|piece| piece.form.element_count()).sum::<usize>(), parameters, "{}", shape.title);
        }
    }
}
