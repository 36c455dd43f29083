//! What the tests of this crate share.
#![allow(dead_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_device::{Buffer, ByteCount, DType, Device, HostBytes, Queue, ReadError, Upload, UploadPiece, WeightForm};
use plimsoll_sim::{SimDevice, SimOptions};

/// A link on which a byte takes a microsecond, without latency; a float operation takes one too.
pub(crate) fn slow_device() -> SimOptions {
    SimOptions {
        memory: ByteCount::mib(1),
        link_bytes_per_second: 1e6,
        link_latency: Duration::ZERO,
        flops_per_second: 1e6,
        trace: true,
        ..SimOptions::default()
    }
}

pub(crate) fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// A unit of `bytes` bytes, a multiple of 4, each of them `fill`.
pub(crate) fn unit(name: &str, bytes: usize, fill: u8) -> Arc<Upload> {
    unit_of(name, Arc::new(vec![fill; bytes]))
}

/// A unit that has a size but no bytes: reading them panics.
pub(crate) fn hollow_unit(name: &str, bytes: usize) -> Arc<Upload> {
    unit_of(name, Arc::new(Hollow(bytes)))
}

pub(crate) fn unit_of(name: &str, source: Arc<dyn HostBytes>) -> Arc<Upload> {
    let form = WeightForm::Vector { len: source.len() / 4 };
    let piece = UploadPiece { source, source_dtype: DType::F32, form, dtype: DType::F32, offset: 0 };
    Arc::new(Upload { name: name.to_owned(), pieces: vec![piece] })
}

pub(crate) fn allocate(device: &SimDevice, queue: &dyn Queue, bytes: u64) -> Buffer {
    device.allocate(queue, device.ledger().account("test"), ByteCount(bytes)).unwrap()
}

/// A buffer that all work enqueued later on `queue` may read.
pub(crate) fn filled(device: &SimDevice, queue: &dyn Queue, bytes: u64) -> Buffer {
    let mut buffer = allocate(device, queue, bytes);
    device.compute(queue, "fill", 0.0, &[], &mut [&mut buffer]).unwrap();
    buffer
}

/// The violations, as text.
pub(crate) fn violations(device: &SimDevice) -> Vec<String> {
    device.violations().iter().map(ToString::to_string).collect()
}

struct Hollow(usize);

impl HostBytes for Hollow {
    fn len(&self) -> usize {
        self.0
    }

    fn as_slice(&self) -> Option<&[u8]> {
        panic!("a source is read")
    }

    fn read_at(&self, _range: Range<usize>, _out: &mut [u8]) -> Result<(), ReadError> {
        panic!("a source is read")
    }
}

/// A source that fails.
pub(crate) struct Broken(pub(crate) usize);

impl HostBytes for Broken {
    fn len(&self) -> usize {
        self.0
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, range: Range<usize>, _out: &mut [u8]) -> Result<(), ReadError> {
        let reason = "the file has become shorter".to_owned();
        Err(ReadError { origin: "unet.safetensors".to_owned(), offset: 8, len: range.len(), reason })
    }
}
