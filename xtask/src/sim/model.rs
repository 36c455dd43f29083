//! A model on a simulated device: the component, and what its kernels must see.

use std::sync::Arc;

use plimsoll_device::{Buffer, ByteCount, DType, Device, DeviceError, Queue, Upload, UploadPiece, WeightForm};
use plimsoll_residency::{Component, Manager, Merge, Patch, PatchSet, PatchSetId, Unit};
use plimsoll_sim::{Content, SimDevice};

use super::scenario::{Effect, ModelShape};

/// Seconds that merging one adapter into a unit takes.
const MERGE_SECONDS: f64 = 1e-6;

/// A component and what is known of it.
pub(crate) struct Model {
    pub(crate) shape: ModelShape,
    pub(crate) component: Arc<Component>,
    /// What each unit holds without adapters.
    contents: Vec<Content>,
    sets: Vec<Adapters>,
}

/// A set of adapters, ready to be put on.
struct Adapters {
    patches: Vec<Option<Patch>>,
    /// What is read beside each unit.
    beside: Vec<Option<Content>>,
}

impl Model {
    pub(crate) fn new(shape: &ModelShape, device: &Arc<SimDevice>, manager: &Manager) -> Self {
        let units: Vec<Unit> =
            shape.sizes.iter().enumerate().map(|(idx, &bytes)| unit(device, shape, idx, bytes)).collect();
        let contents = units.iter().map(|unit| content(&unit.upload)).collect();
        let sets = (0..shape.sets.len()).map(|set| Adapters::new(shape, set, device)).collect();
        Self { shape: shape.clone(), component: manager.add(&shape.name, units), contents, sets }
    }

    /// A set of adapters, as a new object each time: clones are told by their identity.
    pub(crate) fn patch_set(&self, set: usize) -> Arc<PatchSet> {
        let patches = self.sets[set].patches.clone();
        Arc::new(PatchSet { id: PatchSetId(self.shape.sets[set].id), patches })
    }

    /// What a unit holds with a set of adapters on.
    pub(crate) fn expected(&self, unit: usize, set: usize) -> Content {
        let mut content = self.contents[unit].clone();
        if let Effect::Merged { adapters, .. } = &self.shape.sets[set].effects[unit] {
            content.adapters.clone_from(adapters);
        }
        content
    }

    /// What is read beside it.
    pub(crate) fn expected_beside(&self, unit: usize, set: usize) -> Option<Content> {
        self.sets[set].beside[unit].clone()
    }
}

impl Adapters {
    fn new(shape: &ModelShape, set: usize, device: &Arc<SimDevice>) -> Self {
        let (mut patches, mut beside) = (Vec::new(), Vec::new());
        for (idx, effect) in shape.sets[set].effects.iter().enumerate() {
            let (patch, content) = match effect {
                Effect::None => (None, None),
                Effect::Merged { adapters, transient_bytes } => {
                    let (adapters, transient_bytes) = (adapters.clone(), ByteCount(*transient_bytes));
                    let elements = shape.sizes[idx] / 2;
                    let merging = Merging { device: device.clone(), adapters, transient_bytes, elements };
                    (Some(Patch::Merged(Arc::new(merging))), None)
                }
                Effect::Beside { bytes } => {
                    let tag = 1_000_000 * shape.sets[set].id + idx as u64;
                    let unit = tagged_unit(device, &format!("{}.{idx}.adapter", shape.name), tag, *bytes);
                    let content = content(&unit.upload);
                    (Some(Patch::Unmerged(unit)), Some(content))
                }
            };
            patches.push(patch);
            beside.push(content);
        }
        Self { patches, beside }
    }
}

/// Adapters that are merged one after the other.
struct Merging {
    device: Arc<SimDevice>,
    adapters: Vec<u64>,
    transient_bytes: ByteCount,
    elements: u64,
}

impl Merge for Merging {
    fn transient_bytes(&self) -> ByteCount {
        self.transient_bytes
    }

    fn patched_elements(&self) -> u64 {
        self.elements
    }

    fn merge(&self, device: &dyn Device, queue: &dyn Queue, weights: &mut Buffer) -> Result<(), DeviceError> {
        assert_eq!(device.id(), self.device.id(), "adapters are merged on their own device");
        let account = device.ledger().account("merging");
        for &adapter in &self.adapters {
            let mut scratch = device.allocate(queue, account, self.transient_bytes)?;
            self.device.compute(queue, "adapter product", MERGE_SECONDS, &[], &mut [&mut scratch])?;
            self.device.compute(queue, "adapter sum", 0.0, &[&scratch], &mut [])?;
            self.device.merge(queue, weights, adapter, MERGE_SECONDS)?;
        }
        Ok(())
    }
}

fn unit(device: &SimDevice, shape: &ModelShape, idx: usize, bytes: u64) -> Unit {
    let tag = shape.name.bytes().fold(idx as u64, |tag, byte| tag * 1000 + u64::from(byte));
    tagged_unit(device, &format!("{}.{idx}", shape.name), tag, bytes)
}

/// A unit of one piece or of two, whose bytes repeat a tag.
fn tagged_unit(device: &SimDevice, name: &str, tag: u64, bytes: u64) -> Unit {
    let last = device.options().allocation_unit.0;
    let first = if bytes > last { bytes - last } else { bytes };
    let piece = |bytes: u64| {
        let source: Vec<u8> = tag.to_le_bytes().into_iter().cycle().take(bytes as usize).collect();
        let form = WeightForm::Vector { len: source.len() / 4 };
        UploadPiece { source: Arc::new(source), source_dtype: DType::F32, form, dtype: DType::F32, offset: 0 }
    };
    let pieces = [first, bytes - first].into_iter().filter(|&bytes| bytes > 0).map(piece).collect();
    Unit::new(device, Upload { name: name.to_owned(), pieces })
}

fn content(upload: &Upload) -> Content {
    Content::of_upload(upload).expect("bytes in memory can be read")
}
