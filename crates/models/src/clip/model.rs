//! The text encoder.

use plimsoll_nn::{BuildError, Builder, Embedding, LayerNorm, Linear, NnError, Run};
use plimsoll_tensor::{Activation, OpError, Tensor};

use super::{ClipConfig, Pooling};

/// From token ids to what an image model is conditioned on.
///
/// Source: transformers 5.24.0, models/clip/modeling_clip.py, `CLIPTextModel` and `CLIPTextModelWithProjection`.
#[derive(Debug)]
pub struct ClipTextEncoder {
    token_embedding: Embedding,
    position_embedding: Embedding,
    layers: Vec<EncoderLayer>,
    final_layer_norm: LayerNorm,
    text_projection: Option<Linear>,
    vocab_size: usize,
    max_position_embeddings: usize,
    pooling: Pooling,
}

/// Which of the encoder's results are wanted. Layers that none of them needs are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// How many of the last layers the hidden state leaves out: 0 for the last layer's output, 1 for the penultimate
    /// (`hidden_states[-2]`), and so on; as many as there are layers for the embeddings themselves.
    pub layers_skipped: usize,
    /// Whether the hidden state goes through the final norm. Stable Diffusion 1 and 2 do so, also with layers skipped
    /// ("clip skip"); XL takes the penultimate state as it is.
    pub final_norm: bool,
    /// Whether the pooled state is wanted; it always comes from the last layer and the final norm.
    pub pooled: bool,
}

impl TextRequest {
    /// The last layer's state behind the final norm: `last_hidden_state`.
    pub const LAST: Self = Self { layers_skipped: 0, final_norm: true, pooled: false };
    /// What Stable Diffusion XL takes of both its encoders.
    pub const PENULTIMATE_AND_POOLED: Self = Self { layers_skipped: 1, final_norm: false, pooled: true };
}

/// What a text means to an image model.
#[derive(Clone, Debug)]
pub struct TextEncoding {
    /// `[batch, tokens, hidden_size]`.
    pub hidden_state: Tensor,
    /// The state at the end token, projected (`text_embeds`) by an encoder that has a projection:
    /// `[batch, projection_dim]`, otherwise (`pooler_output`) `[batch, hidden_size]`. None if not requested.
    pub pooled: Option<Tensor>,
}

/// A text could not be encoded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClipError {
    /// A sequence is too long, or sequences differ in length or are empty. Truncate and pad them to one length.
    #[error("sequence {idx} has {found} tokens, but all must have {expected}, from 1 to {max}")]
    Length {
        /// Which sequence.
        idx: usize,
        /// Its tokens.
        found: usize,
        /// The tokens of the first sequence.
        expected: usize,
        /// The most that the encoder has positions for.
        max: usize,
    },
    /// There is no sequence to encode.
    #[error("there is no sequence to encode; give one for each prompt")]
    NoSequence,
    /// A token is not of this encoder's vocabulary: the tokenizer belongs to another encoder.
    #[error("the token id {id} is beyond the text encoder's vocabulary of {vocab_size}; use the model's own tokenizer")]
    UnknownToken {
        /// The token.
        id: u32,
        /// Rows of the token table.
        vocab_size: usize,
    },
    /// More layers are to be left out than there are.
    #[error("{skipped} layers can't be left out of a text encoder with {layers}; leave out at most {layers}")]
    LayersSkipped {
        /// How many should be left out.
        skipped: usize,
        /// How many there are.
        layers: usize,
    },
    /// A layer could not be run.
    #[error(transparent)]
    Nn(#[from] NnError),
}

impl From<OpError> for ClipError {
    fn from(error: OpError) -> Self {
        Self::Nn(error.into())
    }
}

impl ClipTextEncoder {
    /// The encoder whose tensors lie at `b`, with the prefix `text_model.` of published checkpoints or without, as
    /// transformers 5 writes them.
    ///
    /// # Errors
    /// [`BuildError`] if the checkpoint lacks a tensor or has it in another shape.
    pub fn build(b: &Builder<'_>, config: &ClipConfig) -> Result<Self, BuildError> {
        let has_prefix = b.has("text_model.embeddings.token_embedding.weight");
        let at = if has_prefix { b.sub("text_model") } else { b.clone() };
        let (embeddings, width) = (at.sub("embeddings"), config.hidden_size);
        let layer = |idx| EncoderLayer::build(&at.sub("encoder.layers").sub(idx), config);
        Ok(Self {
            token_embedding: embeddings.embedding("token_embedding", config.vocab_size, width)?,
            position_embedding: embeddings.embedding("position_embedding", config.max_position_embeddings, width)?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_, _>>()?,
            final_layer_norm: at.layer_norm("final_layer_norm", width, config.layer_norm_eps)?,
            text_projection: match config.projection_dim {
                Some(projection_dim) => Some(b.linear("text_projection", width, projection_dim, false)?),
                None => None,
            },
            vocab_size: config.vocab_size,
            max_position_embeddings: config.max_position_embeddings,
            pooling: config.pooling,
        })
    }

    /// Whether a checkpoint may have this tensor although the model takes no such: the list of positions 0, 1, 2 ..
    /// that transformers before 4.31 saved.
    pub fn ignores(name: &str) -> bool {
        matches!(name, "text_model.embeddings.position_ids" | "embeddings.position_ids")
    }

    /// Encodes sequences of one length.
    ///
    /// # Errors
    /// [`ClipError`] if the sequences or the request don't fit the encoder, weights can't be had, or memory is short.
    pub fn forward(&self, run: &Run<'_>, ids: &[Vec<u32>], request: TextRequest) -> Result<TextEncoding, ClipError> {
        let tokens = self.check(ids, request)?;
        let mut x = self.embed(run, ids, tokens)?;
        let state_depth = self.layers.len() - request.layers_skipped;
        for layer in &self.layers[..state_depth] {
            x = layer.forward(run, x)?;
        }
        if !request.pooled {
            let hidden_state = if request.final_norm { self.final_layer_norm.forward(run, &x)? } else { x };
            return Ok(TextEncoding { hidden_state, pooled: None });
        }
        let state = x.clone();
        for layer in &self.layers[state_depth..] {
            x = layer.forward(run, x)?;
        }
        let last = self.final_layer_norm.forward(run, &x)?;
        drop(x);
        let pooled = Some(self.pool(run, ids, &last)?);
        let hidden_state = match (request.final_norm, request.layers_skipped) {
            (true, 0) => last,
            (true, _) => self.final_layer_norm.forward(run, &state)?,
            (false, _) => state,
        };
        Ok(TextEncoding { hidden_state, pooled })
    }

    /// The sequences' one length.
    fn check(&self, ids: &[Vec<u32>], request: TextRequest) -> Result<usize, ClipError> {
        let layers = self.layers.len();
        if request.layers_skipped > layers {
            return Err(ClipError::LayersSkipped { skipped: request.layers_skipped, layers });
        }
        let expected = ids.first().ok_or(ClipError::NoSequence)?.len();
        let max = self.max_position_embeddings;
        for (idx, sequence) in ids.iter().enumerate() {
            let found = sequence.len();
            if found != expected || !(1..=max).contains(&found) {
                return Err(ClipError::Length { idx, found, expected, max });
            }
        }
        let vocab_size = self.vocab_size;
        match ids.iter().flatten().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(ClipError::UnknownToken { id, vocab_size }),
            None => Ok(expected),
        }
    }

    fn embed(&self, run: &Run<'_>, ids: &[Vec<u32>], tokens: usize) -> Result<Tensor, ClipError> {
        let flat = ids.concat();
        let positions: Vec<u32> = (0..flat.len()).map(|idx| (idx % tokens) as u32).collect();
        let x = self.token_embedding.forward(run, &flat)?;
        let x = run.cx.add(x, &self.position_embedding.forward(run, &positions)?)?;
        let width = x.columns();
        Ok(x.reshape(&[ids.len(), tokens, width])?)
    }

    /// The state of each sequence's end token, projected if there is a projection: `[batch, width]`.
    fn pool(&self, run: &Run<'_>, ids: &[Vec<u32>], state: &Tensor) -> Result<Tensor, ClipError> {
        let (tokens, width) = (ids[0].len(), state.columns());
        let rows = state.clone().reshape(&[ids.len() * tokens, width])?;
        let at_end = |(idx, sequence): (usize, &Vec<u32>)| rows.rows(idx * tokens + self.pooling.position(sequence), 1);
        let parts: Vec<Tensor> = ids.iter().enumerate().map(at_end).collect::<Result<_, _>>()?;
        let pooled = run.cx.concat(&parts.iter().collect::<Vec<_>>())?.reshape(&[ids.len(), width])?;
        match &self.text_projection {
            None => Ok(pooled),
            Some(projection) => Ok(projection.forward(run, &pooled)?),
        }
    }
}

impl Pooling {
    /// Which position of the sequence is pooled.
    pub fn position(self, ids: &[u32]) -> usize {
        let wanted = match self {
            Self::LargestId => ids.iter().max().copied(),
            Self::FirstOf(id) => Some(id),
        };
        ids.iter().position(|&id| Some(id) == wanted).unwrap_or(0)
    }
}

/// Attention to the tokens before, and a feed-forward layer, each behind a norm and added to its input.
#[derive(Debug)]
struct EncoderLayer {
    layer_norm1: LayerNorm,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    out_proj: Linear,
    layer_norm2: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    heads: usize,
    activation: Activation,
}

impl EncoderLayer {
    fn build(b: &Builder<'_>, config: &ClipConfig) -> Result<Self, BuildError> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let attention = b.sub("self_attn");
        let projection = |name| attention.linear(name, width, width, true);
        Ok(Self {
            layer_norm1: b.layer_norm("layer_norm1", width, config.layer_norm_eps)?,
            q_proj: projection("q_proj")?,
            k_proj: projection("k_proj")?,
            v_proj: projection("v_proj")?,
            out_proj: projection("out_proj")?,
            layer_norm2: b.layer_norm("layer_norm2", width, config.layer_norm_eps)?,
            fc1: b.sub("mlp").linear("fc1", width, inner, true)?,
            fc2: b.sub("mlp").linear("fc2", inner, width, true)?,
            heads: config.num_attention_heads,
            activation: config.hidden_act,
        })
    }

    /// `x` and the result: `[batch, tokens, width]`.
    fn forward(&self, run: &Run<'_>, mut x: Tensor) -> Result<Tensor, NnError> {
        let mut h = self.layer_norm1.forward(run, &x)?;
        let q = self.q_proj.forward(run, &h)?;
        let k = self.k_proj.forward(run, &h)?;
        let v = self.v_proj.forward(run, &h)?;
        h = run.cx.attention(&q, &k, &v, self.heads, true)?;
        drop((q, k, v));
        h = self.out_proj.forward(run, &h)?;
        x = run.cx.add(h, &x)?;

        h = self.layer_norm2.forward(run, &x)?;
        h = run.cx.activate(self.fc1.forward(run, &h)?, self.activation)?;
        h = self.fc2.forward(run, &h)?;
        Ok(run.cx.add(h, &x)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_the_first_largest_or_the_first_end_token() {
        let ids = [49406, 320, 49407, 49407, 2];
        assert_eq!(Pooling::LargestId.position(&ids), 2);
        assert_eq!(Pooling::FirstOf(49407).position(&ids), 2);
        assert_eq!(Pooling::FirstOf(2).position(&ids), 4);
        assert_eq!(Pooling::FirstOf(7).position(&ids), 0);
    }
}
