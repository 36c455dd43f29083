//! Pictures to larger pictures.

use std::sync::Arc;

use plimsoll_device::DType;
use plimsoll_models::srvgg::{Srvgg, SrvggConfig};
use plimsoll_nn::Run;
use plimsoll_residency::{Component, Manager};
use plimsoll_weights::TensorIndex;

use crate::generate::Watch;
use crate::phase_component::{PhaseComponent, PhasePlan};
use crate::{Image, Phase, PipelineError};

/// An upscaler net, opened; loaded for its phase.
pub struct Upscaler {
    net: PhaseComponent<Srvgg>,
    config: SrvggConfig,
    dtype: DType,
}

impl Upscaler {
    /// Opens an SRVGGNetCompact.
    ///
    /// # Errors
    /// [`PipelineError`] if the tensors are not those of one for pictures in color.
    pub fn open(tensors: &TensorIndex, manager: &Arc<Manager>, dtype: DType) -> Result<Self, PipelineError> {
        let config = SrvggConfig::detect(tensors)?;
        if config.image_channels != 3 {
            let what = format!("an upscaler must have 3 image channels, and this one has {}", config.image_channels);
            return Err(PipelineError::Mismatch(what));
        }
        let net =
            PhaseComponent::build("upscaler", tensors, manager, dtype, Srvgg::ignores, |b| Srvgg::build(b, &config))?;
        Ok(Self { net, config, dtype })
    }

    /// How much larger a picture gets along each side.
    pub fn factor(&self) -> usize {
        self.config.upscale
    }

    pub(crate) fn component(&self) -> &Arc<Component> {
        &self.net.component
    }

    pub(crate) fn plan(&self, count: usize, width: usize, height: usize) -> Result<PhasePlan, PipelineError> {
        let blank = Image::from_signed(width, height, &vec![0.0; width * height * 3]);
        self.net.plan(&[height, width], count, |net, run| self.enlarge(net, run, &blank).map(drop))
    }

    pub(crate) fn run(
        &self,
        plan: &PhasePlan,
        images: &[Image],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Image>, PipelineError> {
        watch.begin(Phase::Upscale, images.len());
        let enlarged = self.net.run(plan, |net, run| {
            let one = |image| {
                let enlarged = self.enlarge(net, run, image)?;
                watch.step()?;
                Ok(enlarged)
            };
            let enlarged = images.iter().map(one).collect::<Result<Vec<_>, PipelineError>>()?;
            watch.note_memory();
            Ok(enlarged)
        })?;
        watch.end();
        Ok(enlarged)
    }

    fn enlarge(&self, net: &Srvgg, run: &Run<'_>, image: &Image) -> Result<Image, PipelineError> {
        let (width, height, factor) = (image.width(), image.height(), self.factor());
        let levels: Vec<f32> = image.rgb().iter().map(|&level| f32::from(level) / 255.0).collect();
        let x = run.cx.upload(&levels, &[1, height, width, 3], self.dtype)?;
        let y = net.forward(run, &x)?;
        drop(x);
        let mut levels = run.cx.download(&y)?;
        if levels.iter().any(|level| !level.is_finite()) {
            return Err(PipelineError::NotFinite { phase: Phase::Upscale });
        }
        levels.iter_mut().for_each(|level| *level = *level * 2.0 - 1.0);
        Ok(Image::from_signed(width * factor, height * factor, &levels))
    }
}
