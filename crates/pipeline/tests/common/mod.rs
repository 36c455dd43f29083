//! What the pipeline's tests share.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::Arc;

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType, Device};
use plimsoll_pipeline::{Image, ModelSource, Pipeline, PipelineOptions};
use plimsoll_residency::{Manager, ManagerOptions};
use plimsoll_testkit::{asset, fixture};
use serde_json::Value;

/// A CPU with that budget.
pub(crate) fn device(budget: ByteCount) -> Arc<CpuDevice> {
    Arc::new(CpuDevice::new(&CpuOptions { budget, threads: Some(2) }).unwrap())
}

/// A manager whose components leave the device with their phase.
pub(crate) fn manager(device: Arc<CpuDevice>, offload_streams: usize) -> Arc<Manager> {
    let device: Arc<dyn Device> = device;
    Manager::new(&device, ManagerOptions { offload_streams, keep_idle: false, ..ManagerOptions::default() })
}

/// The model in that folder, in f32.
pub(crate) fn opened(folder: &Path, device: Arc<CpuDevice>, offload_streams: usize) -> Pipeline {
    open_with(folder, manager(device, offload_streams))
}

/// The model in that folder, in f32, on that manager.
pub(crate) fn open_with(folder: &Path, manager: Arc<Manager>) -> Pipeline {
    let options = PipelineOptions { dtype: DType::F32 };
    Pipeline::open(&ModelSource::Folder(folder.to_owned()), manager, options).unwrap()
}

/// A copy of a fixture's or the built-in model, with its scheduler's class and options replaced.
pub(crate) fn with_scheduler(model: &str, class: &Value, overrides: &Value) -> tempfile::TempDir {
    let source = if model == "emoji64" { asset("emoji64") } else { fixture(&format!("models/{model}")) };
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&source, copy.path());
    let file = copy.path().join("scheduler/scheduler_config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    if class.is_string() {
        config["_class_name"] = class.clone();
    }
    for (key, value) in overrides.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    std::fs::write(&file, config.to_string()).unwrap();
    copy
}

/// Copies files and folders.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// The RGB picture in a PNG under `fixtures/`.
pub(crate) fn picture(path: &str) -> Image {
    let file = std::io::BufReader::new(std::fs::File::open(fixture(path)).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut rgb).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    Image::new(info.width as usize, info.height as usize, rgb).unwrap()
}
