//! The whole UNet.

use plimsoll_nn::{BuildError, Builder, Conv2d, GroupNorm, NnError, Run};
use plimsoll_tensor::{Activation, Tensor};

use super::blocks::{Conditions, DownBlock, MidBlock, UpBlock};
use super::timestep::EmbeddingMlp;
use super::{AddedConfig, TimeConfig, UnetConfig};
use crate::resnet::same_size;

/// Predicts the noise (or what else it was trained to predict) in a sample.
///
/// Source: diffusers 0.42.1, models/unets/unet_2d_condition.py, `UNet2DConditionModel`.
#[derive(Debug)]
pub struct Unet {
    center_input_sample: bool,
    time: TimeConfig,
    added: Option<(AddedConfig, EmbeddingMlp)>,
    time_embedding: EmbeddingMlp,
    conv_in: Conv2d,
    down_blocks: Vec<DownBlock>,
    mid_block: Option<MidBlock>,
    up_blocks: Vec<UpBlock>,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
}

/// What a prediction is made from. All tensors have the dtype that the model was built with.
#[derive(Clone, Copy)]
pub struct UnetInput<'a> {
    /// The noisy sample, `[batch, height, width, in_channels]`.
    pub sample: &'a Tensor,
    /// The timestep of each sample of the batch.
    pub timesteps: &'a [f32],
    /// The text, `[batch, tokens, cross_attention_dim]`.
    pub encoder_hidden_states: &'a Tensor,
    /// What a model with `addition_embed_type` "text_time" needs, and no other takes.
    pub added: Option<AddedInput<'a>>,
}

/// SDXL's added conditioning.
#[derive(Clone, Copy)]
pub struct AddedInput<'a> {
    /// The pooled and projected text, `[batch, width]`.
    pub text_embeds: &'a Tensor,
    /// For each sample of the batch, one after the other, the same number of numbers: original height and width, crop
    /// top and left, target height and width.
    pub time_ids: &'a [f32],
}

/// A value on the way through the model, for whoever looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The time embedding with what was added to it, `[batch, width]`.
    TimeEmbedding,
    /// The first convolution's output.
    ConvIn,
    /// A down block's output.
    Down(usize),
    /// The mid block's output.
    Mid,
    /// An up block's output.
    Up(usize),
}

/// A prediction could not be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UnetError {
    /// The inputs don't fit the model or one another.
    #[error("the UNet can't take {what} for {batch} samples: {rule}")]
    Input {
        /// The input and its shape.
        what: String,
        /// Samples in the batch.
        batch: usize,
        /// What must hold.
        rule: String,
    },
    /// A layer could not be run.
    #[error(transparent)]
    Nn(#[from] NnError),
}

impl From<plimsoll_tensor::OpError> for UnetError {
    fn from(error: plimsoll_tensor::OpError) -> Self {
        Self::Nn(error.into())
    }
}

impl Unet {
    /// The UNet whose tensors lie at `b`, in the order in which a prediction visits them.
    ///
    /// # Errors
    /// [`BuildError`] if the checkpoint lacks a tensor or has it in another shape.
    pub fn build(b: &Builder<'_>, config: &UnetConfig) -> Result<Self, BuildError> {
        let channels = config.down_blocks[0].channels;
        let time = config.time;
        let time_embedding = EmbeddingMlp::build(&b.sub("time_embedding"), time.channels, time.width)?;
        let added = match config.added {
            None => None,
            Some(added) => Some((added, EmbeddingMlp::build(&b.sub("add_embedding"), added.input_width, time.width)?)),
        };
        let conv_in = b.conv2d("conv_in", same_size(config.in_channels, channels, config.conv_in_kernel))?;

        let block_count = config.down_blocks.len();
        let mut skip_channels = vec![channels];
        let mut in_channels = channels;
        let mut down_blocks = Vec::with_capacity(block_count);
        for (idx, block) in config.down_blocks.iter().enumerate() {
            let is_last = idx + 1 == block_count;
            down_blocks.push(DownBlock::build(&b.sub("down_blocks").sub(idx), in_channels, block, config, is_last)?);
            in_channels = block.channels;
            skip_channels.extend(vec![in_channels; block.layers + usize::from(!is_last)]);
        }
        let mid_block = match &config.mid_block {
            None => None,
            Some(block) => Some(MidBlock::build(&b.sub("mid_block"), block, config)?),
        };
        let mut up_blocks = Vec::with_capacity(block_count);
        for (idx, block) in config.up_blocks.iter().enumerate() {
            let (at, is_last) = (b.sub("up_blocks").sub(idx), idx + 1 == block_count);
            up_blocks.push(UpBlock::build(&at, in_channels, &mut skip_channels, block, config, is_last)?);
            in_channels = block.channels;
        }
        Ok(Self {
            center_input_sample: config.center_input_sample,
            time,
            added,
            time_embedding,
            conv_in,
            down_blocks,
            mid_block,
            up_blocks,
            conv_norm_out: b.group_norm("conv_norm_out", channels, config.norm_num_groups, config.norm_eps)?,
            conv_out: b.conv2d("conv_out", same_size(channels, config.out_channels, config.conv_out_kernel))?,
        })
    }

    /// Whether a checkpoint may have this tensor although the model takes no such: none.
    pub fn ignores(_name: &str) -> bool {
        false
    }

    /// The prediction, `[batch, height, width, out_channels]`.
    ///
    /// Any size is fine that the down blocks don't halve to nothing.
    ///
    /// # Errors
    /// [`UnetError`] if the inputs don't fit, weights can't be had, or memory is short.
    pub fn forward(&self, run: &Run<'_>, input: &UnetInput<'_>) -> Result<Tensor, UnetError> {
        self.forward_observed(run, input, &mut |_, _| ())
    }

    /// The same, showing the values on the way to `observe`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_observed(
        &self,
        run: &Run<'_>,
        input: &UnetInput<'_>,
        observe: &mut dyn FnMut(Stage, &Tensor),
    ) -> Result<Tensor, UnetError> {
        let time = self.embed_time(run, input)?;
        observe(Stage::TimeEmbedding, &time);
        let time = run.cx.activate(time, Activation::Silu)?;
        let conditions = Conditions { time: &time, context: input.encoder_hidden_states };

        let mut x = match self.center_input_sample {
            true => {
                let centered = Activation::Affine { scale: 2.0, shift: -1.0 };
                self.conv_in.forward(run, &run.cx.activate(input.sample.clone(), centered)?)?
            }
            false => self.conv_in.forward(run, input.sample)?,
        };
        observe(Stage::ConvIn, &x);
        let mut skips = vec![x.clone()];
        for (idx, block) in self.down_blocks.iter().enumerate() {
            x = block.forward(run, x, &conditions, &mut skips)?;
            observe(Stage::Down(idx), &x);
        }
        if let Some(block) = &self.mid_block {
            x = block.forward(run, x, &conditions)?;
            observe(Stage::Mid, &x);
        }
        for (idx, block) in self.up_blocks.iter().enumerate() {
            x = block.forward(run, x, &conditions, &mut skips)?;
            observe(Stage::Up(idx), &x);
        }
        x = self.conv_norm_out.forward_silu(run, &x)?;
        Ok(self.conv_out.forward(run, &x)?)
    }

    fn embed_time(&self, run: &Run<'_>, input: &UnetInput<'_>) -> Result<Tensor, UnetError> {
        let (batch, dtype) = (input.sample.shape().first().copied().unwrap_or(1), input.sample.dtype());
        let error = |what: String, rule: String| UnetError::Input { what, batch, rule };
        if input.timesteps.len() != batch {
            let rule = "there must be one for each sample".to_owned();
            return Err(error(format!("{} timesteps", input.timesteps.len()), rule));
        }
        let time = self.time.embed(run, input.timesteps, self.time.channels, dtype)?;
        let time = self.time_embedding.forward(run, time)?;
        let (config, mlp, added) = match (&self.added, input.added) {
            (None, None) => return Ok(time),
            (Some((config, mlp)), Some(added)) => (config, mlp, added),
            (Some(_), None) => {
                let rule = "its `addition_embed_type` is `text_time`, which needs both".to_owned();
                return Err(error("no `text_embeds` and `time_ids`".to_owned(), rule));
            }
            (None, Some(_)) => {
                let rule = "it has no `addition_embed_type`".to_owned();
                return Err(error("`text_embeds` and `time_ids`".to_owned(), rule));
            }
        };
        let number_width = added.time_ids.len() / batch * config.time_channels;
        let text_width = added.text_embeds.columns();
        if !added.time_ids.len().is_multiple_of(batch) || text_width + number_width != config.input_width {
            let what = format!("`text_embeds` {:?} and {} `time_ids`", added.text_embeds.shape(), added.time_ids.len());
            let AddedConfig { time_channels, input_width } = config;
            let rule = format!("the width and {time_channels} for each number must sum to {input_width} a sample");
            return Err(error(what, rule));
        }
        let numbers = self.time.embed(run, added.time_ids, config.time_channels, dtype)?;
        let numbers = numbers.reshape(&[batch, number_width])?;
        let added = mlp.forward(run, run.cx.concat(&[added.text_embeds, &numbers])?)?;
        Ok(run.cx.add(time, &added)?)
    }
}
