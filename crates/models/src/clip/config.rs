//! A CLIP text encoder's config.json, as transformers writes it.

use plimsoll_tensor::Activation;
use serde_json::{Value, json};

use crate::ConfigError;
use crate::fields::{Fields, count};

const CHANNELS_MAX: usize = 1 << 16;
const LAYERS_MAX: usize = 512;
const VOCABULARY_MAX: usize = 1 << 24;

/// Fields of transformers' text configs that don't change what the encoder computes: notes on training, on the
/// tokenizer, and on how transformers returns its results. Source: transformers 5.24.0, configuration_clip.py and
/// configuration_utils.py; the last three lines were written by 4.x.
const WITHOUT_EFFECT: &[&str] = &[
    "transformers_version",
    "attention_dropout",
    "initializer_factor",
    "initializer_range",
    "bos_token_id",
    "pad_token_id",
    "dtype",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "dropout",
    "torch_dtype",
    "use_cache",
    "is_decoder",
    "add_cross_attention",
    "tie_word_embeddings",
    "torchscript",
    "gradient_checkpointing",
    "use_bfloat16",
    "finetuning_task",
    "task_specific_params",
];

/// What a CLIP text encoder is.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipConfig {
    /// Rows of the token table.
    pub vocab_size: usize,
    /// Features of a token.
    pub hidden_size: usize,
    /// Features inside the feed-forward layers.
    pub intermediate_size: usize,
    /// Features of `text_embeds`; none for an encoder without projection.
    pub projection_dim: Option<usize>,
    /// Transformer layers.
    pub num_hidden_layers: usize,
    /// Heads of each attention.
    pub num_attention_heads: usize,
    /// The longest sequence.
    pub max_position_embeddings: usize,
    /// The feed-forward layers' function.
    pub hidden_act: Activation,
    /// Added to the variance by the norms.
    pub layer_norm_eps: f32,
    /// Which token's features stand for the whole sequence.
    pub pooling: Pooling,
}

/// Which position of a sequence is pooled.
///
/// Source: transformers 5.24.0, modeling_clip.py, `CLIPTextModel.forward`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first position of the largest id. Configs written before 2023 say `eos_token_id` 2, which is wrong, and mean
    /// this: in CLIP's own vocabulary the end token has the largest id.
    LargestId,
    /// The first position of this id; position 0 if the sequence lacks it.
    FirstOf(u32),
}

impl ClipConfig {
    /// Reads a config.json. The class, with projection or without, is taken from `architectures`.
    ///
    /// # Errors
    /// [`ConfigError`] for an unknown field, or a value that is out of range or of a model that isn't built here.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse("text encoder", json)?;
        fields.only("model_type", &[json!("clip_text_model")])?;
        let has_projection = fields.take("architectures");
        let has_projection = match has_projection.as_ref().map(|value| (value, value.as_array().map(Vec::as_slice))) {
            None => false,
            Some((_, Some([class]))) if class == "CLIPTextModel" => false,
            Some((_, Some([class]))) if class == "CLIPTextModelWithProjection" => true,
            Some((value, _)) => {
                let supported = "[\"CLIPTextModel\"] or [\"CLIPTextModelWithProjection\"]";
                return Err(fields.unsupported("architectures", value, supported.to_owned()));
            }
        };
        let projection_dim = fields.count("projection_dim", 512, CHANNELS_MAX)?;
        let config = Self {
            vocab_size: fields.count("vocab_size", 49408, VOCABULARY_MAX)?,
            hidden_size: fields.count("hidden_size", 512, CHANNELS_MAX)?,
            intermediate_size: fields.count("intermediate_size", 2048, CHANNELS_MAX * 4)?,
            projection_dim: has_projection.then_some(projection_dim),
            num_hidden_layers: fields.count("num_hidden_layers", 12, LAYERS_MAX)?,
            num_attention_heads: fields.count("num_attention_heads", 8, CHANNELS_MAX)?,
            max_position_embeddings: fields.count("max_position_embeddings", 77, VOCABULARY_MAX)?,
            hidden_act: fields.choice(
                "hidden_act",
                Activation::QuickGelu,
                &[
                    ("quick_gelu", Activation::QuickGelu),
                    ("gelu", Activation::Gelu),
                    ("gelu_new", Activation::GeluTanh),
                    ("gelu_pytorch_tanh", Activation::GeluTanh),
                ],
            )?,
            layer_norm_eps: fields.number(
                "layer_norm_eps",
                1e-5,
                |eps| eps > 0.0 && eps < 1.0,
                "a number between 0 and 1",
            )? as f32,
            pooling: pooling(&mut fields)?,
        };
        if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            let supported = format!("a divisor of `hidden_size`, which is {}", config.hidden_size);
            return Err(fields.unsupported("num_attention_heads", &json!(config.num_attention_heads), supported));
        }
        fields.without_effect(WITHOUT_EFFECT);
        fields.finish()?;
        Ok(config)
    }
}

fn pooling(fields: &mut Fields) -> Result<Pooling, ConfigError> {
    let value = fields.take("eos_token_id").unwrap_or_else(|| Value::from(49407));
    match count(&value, 0, u32::MAX as usize) {
        Some(2) => Ok(Pooling::LargestId),
        Some(id) => Ok(Pooling::FirstOf(id as u32)),
        None => Err(fields.unsupported("eos_token_id", &value, "one token id".to_owned())),
    }
}
