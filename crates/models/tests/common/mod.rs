//! Loading a model of a fixture onto the CPU device, all resident or streamed.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;
use std::sync::Arc;

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device};
use plimsoll_nn::{BuildError, Builder, Run};
use plimsoll_residency::{Component, LoadRequest, Manager, ManagerOptions, Wanted};
use plimsoll_tensor::{Compute, Tensor};
use plimsoll_testkit::{Golden, GoldenTensor, asset, fixture};
use plimsoll_weights::{TensorIndex, vae_attention_name};

/// The models that have goldens.
pub(crate) const MODELS: [&str; 6] = ["sd15", "sd2", "sdxl", "vae4", "groups", "emoji64"];

/// How much of a component stays on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    Resident,
    /// The smallest plan there is, with so many offload streams.
    Streamed(usize),
}

pub(crate) const STREAMED: [Weights; 3] = [Weights::Streamed(0), Weights::Streamed(1), Weights::Streamed(2)];

/// A model on a device of its own.
pub(crate) struct Loaded<M> {
    pub(crate) model: M,
    cx: Compute,
    weights: Arc<Component>,
    _loaded: plimsoll_residency::Loaded,
    dtype: DType,
}

impl<M> Loaded<M> {
    pub(crate) fn new(
        index: &TensorIndex,
        dtype: DType,
        weights: Weights,
        build: impl FnOnce(&Builder<'_>) -> Result<M, BuildError>,
        ignores: impl Fn(&str) -> bool,
    ) -> Self {
        let options = CpuOptions { budget: ByteCount::MAX, threads: Some(1) };
        let device: Arc<dyn Device> = Arc::new(CpuDevice::new(&options).unwrap());
        let builder = Builder::new(index, &*device, dtype);
        let model = build(&builder).unwrap();
        let units = builder.finish(ignores).unwrap();
        let offload_streams = match weights {
            Weights::Resident => 0,
            Weights::Streamed(streams) => streams,
        };
        let manager = Manager::new(&device, ManagerOptions { offload_streams, ..ManagerOptions::default() });
        let component = manager.add("model", units);
        let least = manager.planner(&component).least_bytes();
        if weights != Weights::Resident {
            device.ledger().set_budget(least);
        }
        let patches = Arc::default();
        let wanted = [Wanted { component: &component, patches: &patches, passes: 2 }];
        let request = LoadRequest { holder: "test", wanted: &wanted, activation_bytes: ByteCount::ZERO };
        let loaded = manager.load(&request).unwrap();
        device.ledger().set_budget(ByteCount::MAX);
        let plan = component.plan().unwrap();
        assert_eq!(plan.streamed_bytes == ByteCount::ZERO, weights == Weights::Resident);
        Self { model, cx: Compute::new(device, "activations"), weights: component, _loaded: loaded, dtype }
    }

    pub(crate) fn run(&self) -> Run<'_> {
        Run { cx: &self.cx, weights: &self.weights }
    }

    /// Numbers to the device, in the model's dtype.
    pub(crate) fn upload(&self, numbers: &[f32], shape: &[usize]) -> Tensor {
        self.cx.upload(numbers, shape, self.dtype).unwrap()
    }

    /// A golden of any shape to the device; an image changes its layout.
    pub(crate) fn upload_golden(&self, golden: &Golden, name: &str) -> Tensor {
        let GoldenTensor { values, shape } = golden.f32(name).channels_last();
        self.upload(&values, &shape)
    }

    pub(crate) fn download(&self, x: &Tensor) -> Vec<f32> {
        self.cx.download(x).unwrap()
    }
}

/// The folder or file of a model's part: `unet`, `vae`, `text_encoder`.
pub(crate) fn part(model: &str, part: &str) -> std::path::PathBuf {
    match model {
        "emoji64" => asset(&format!("emoji64/{part}")),
        model => fixture(&format!("models/{model}/{part}")),
    }
}

pub(crate) fn has_part(model: &str, name: &str) -> bool {
    let root = part(model, "unet");
    root.with_file_name(name).is_dir()
}

pub(crate) fn config(model: &str, name: &str) -> String {
    std::fs::read_to_string(part(model, name).join("config.json")).unwrap()
}

pub(crate) fn index(path: impl AsRef<Path>) -> TensorIndex {
    TensorIndex::open(path).unwrap().renamed(vae_attention_name).unwrap()
}
