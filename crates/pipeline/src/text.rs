//! Prompts to what the denoiser is conditioned on.

use plimsoll_models::clip::TextRequest;
use plimsoll_nn::Run;
use plimsoll_tensor::{Compute, DType, Tensor};

use crate::generate::Shortfall;
use crate::model_index::Family;
use crate::phase_component::PhasePlan;
use crate::pipeline::{Pipeline, TextEncoder};
use crate::{Phase, PipelineError};

/// Encoded prompts, on the host: the unconditional one first if there are two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditioning {
    /// `[prompts, tokens, width]`.
    pub(crate) hidden: Vec<f32>,
    /// Tokens of a prompt.
    pub(crate) tokens: usize,
    /// Numbers of a token.
    pub(crate) width: usize,
    /// SDXL's pooled text, `[prompts, pooled_width]`; empty elsewhere.
    pub(crate) pooled: Vec<f32>,
    /// Numbers of a pooled text.
    pub(crate) pooled_width: usize,
    /// 1, or 2 with guidance.
    pub(crate) prompts: usize,
}

/// The prompts of a run, in batch order, as ids for each text encoder.
pub(crate) struct Prompts {
    ids: Vec<Vec<Vec<u32>>>,
    prompts: usize,
    /// Whether the first prompt is to be zeros instead of its encoding.
    zeroed_first: bool,
}

/// What one encoder gives: `[prompts, tokens, width]`, and `[prompts, pooled width]` if it has a projection.
struct Encoded {
    hidden: Vec<f32>,
    pooled: Vec<f32>,
}

impl Pipeline {
    /// Tokenizes the prompt, and the negative one before it if it is needed.
    pub(crate) fn tokenize(&self, prompt: &str, negative: Option<&str>) -> Result<Prompts, PipelineError> {
        let texts: Vec<&str> = negative.into_iter().chain([prompt]).collect();
        let encode = |text: &TextEncoder| texts.iter().map(|prompt| text.tokenizer.encode(prompt)).collect();
        let ids = self.texts.iter().map(encode).collect::<Result<_, _>>()?;
        let zeros = self.family == Family::StableDiffusionXl { zeros_for_empty_prompt: true };
        Ok(Prompts { ids, prompts: texts.len(), zeroed_first: zeros && negative == Some("") })
    }

    /// Plans the text encoders' phases, as far as they fit.
    pub(crate) fn plan_text(
        &self,
        prompts: &Prompts,
        shortfall: &mut Shortfall,
    ) -> Result<Vec<PhasePlan>, PipelineError> {
        let mut plans = Vec::with_capacity(self.texts.len());
        for (text, ids) in self.texts.iter().zip(&prompts.ids) {
            let pass = |_: &_, run: &Run<'_>| self.encode(text, run, ids).map(drop);
            plans.extend(shortfall.note(text.encoder.plan(&[prompts.prompts, text.tokenizer.length()], 1, pass))?);
        }
        Ok(plans)
    }

    /// Encodes the prompts, one encoder after the other.
    pub(crate) fn encode_text(
        &self,
        plans: &[PhasePlan],
        prompts: &Prompts,
        watch: &mut crate::generate::Watch<'_>,
    ) -> Result<Conditioning, PipelineError> {
        watch.begin(Phase::EncodeText, self.texts.len());
        let mut encoded = Vec::with_capacity(self.texts.len());
        for ((text, ids), phase) in self.texts.iter().zip(&prompts.ids).zip(plans) {
            encoded.push(text.encoder.run(phase, |_, run| {
                let encoded = self.encode(text, run, ids)?;
                watch.step()?;
                watch.note_memory();
                Ok(encoded)
            })?);
        }
        watch.end();
        Ok(self.join(&encoded, prompts))
    }

    /// Conditioning of the right shape, for a rehearsal.
    pub(crate) fn blank_conditioning(&self, prompts: &Prompts) -> Conditioning {
        let blank = |text: &TextEncoder| Encoded {
            hidden: vec![0.0; prompts.prompts * text.tokenizer.length() * text.config.hidden_size],
            pooled: if text.gives_pooled { vec![0.0; prompts.prompts * text.pooled_width()] } else { Vec::new() },
        };
        self.join(&self.texts.iter().map(blank).collect::<Vec<_>>(), prompts)
    }

    fn encode(&self, text: &TextEncoder, run: &Run<'_>, ids: &[Vec<u32>]) -> Result<Encoded, PipelineError> {
        let request = match self.family {
            Family::StableDiffusion => TextRequest::LAST,
            Family::StableDiffusionXl { .. } => {
                TextRequest { pooled: text.gives_pooled, ..TextRequest::PENULTIMATE_AND_POOLED }
            }
        };
        let encoding = text.encoder.model.forward(run, ids, request)?;
        let pooled = encoding.pooled.map(|pooled| run.cx.download(&pooled)).transpose()?;
        Ok(Encoded { hidden: run.cx.download(&encoding.hidden_state)?, pooled: pooled.unwrap_or_default() })
    }

    /// Puts the encoders' tokens side by side.
    fn join(&self, encoded: &[Encoded], prompts: &Prompts) -> Conditioning {
        let tokens = self.texts[0].tokenizer.length();
        let widths: Vec<usize> = self.texts.iter().map(|text| text.config.hidden_size).collect();
        let width = widths.iter().sum();
        let mut hidden = Vec::with_capacity(prompts.prompts * tokens * width);
        for token in 0..prompts.prompts * tokens {
            for (part, width) in encoded.iter().zip(&widths) {
                hidden.extend_from_slice(&part.hidden[token * width..][..*width]);
            }
        }
        let mut pooled = encoded.iter().flat_map(|part| &part.pooled).copied().collect::<Vec<_>>();
        let pooled_width = pooled.len() / prompts.prompts;
        if prompts.zeroed_first {
            hidden[..tokens * width].fill(0.0);
            pooled[..pooled_width].fill(0.0);
        }
        Conditioning { hidden, tokens, width, pooled, pooled_width, prompts: prompts.prompts }
    }
}

impl Conditioning {
    /// The tokens on the device, `[prompts, tokens, width]`.
    pub(crate) fn upload_hidden(&self, cx: &Compute, dtype: DType) -> Result<Tensor, PipelineError> {
        Ok(cx.upload(&self.hidden, &[self.prompts, self.tokens, self.width], dtype)?)
    }

    /// The pooled text on the device, `[prompts, pooled_width]`, where there is one.
    pub(crate) fn upload_pooled(&self, cx: &Compute, dtype: DType) -> Result<Option<Tensor>, PipelineError> {
        if self.pooled.is_empty() {
            return Ok(None);
        }
        Ok(Some(cx.upload(&self.pooled, &[self.prompts, self.pooled_width], dtype)?))
    }
}
