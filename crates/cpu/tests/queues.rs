//! Copy queues and events.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{
    ByteCount, DType, Device, DeviceError, Filling, HostBytes, Queue, ReadError, Upload, UploadPiece, WeightForm,
};

const LEN: usize = 256;

fn device() -> CpuDevice {
    CpuDevice::new(&CpuOptions { budget: ByteCount::MAX, threads: Some(1) }).unwrap()
}

/// Stored numbers that are read only once the test opens the gate.
struct Gated {
    bytes: Vec<u8>,
    gate: Mutex<Receiver<()>>,
}

impl Gated {
    fn new(value: f32) -> (Arc<Self>, Sender<()>) {
        let (open, gate) = channel();
        let bytes = std::iter::repeat_n(value.to_le_bytes(), LEN).flatten().collect();
        (Arc::new(Self { bytes, gate: Mutex::new(gate) }), open)
    }
}

impl HostBytes for Gated {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        // A dropped gate lets everything through.
        let _ = self.gate.lock().unwrap().recv();
        assert!(self.bytes[0] != 0xff, "told to break the queue");
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }
}

fn upload(device: &dyn Device, queue: &dyn Queue, source: Arc<dyn HostBytes>) -> Filling {
    let form = WeightForm::Vector { len: LEN };
    let piece = UploadPiece { source, source_dtype: DType::F32, form, dtype: DType::F32, offset: 0 };
    let account = device.ledger().account("weights");
    let slot = device.allocate(queue, account, device.weight_bytes(&form, DType::F32)).unwrap();
    queue.upload(&Arc::new(Upload { name: "layer".to_owned(), pieces: vec![piece] }), slot)
}

fn first_number(queue: &dyn Queue, filling: Filling) -> Result<f32, DeviceError> {
    let buffer = filling.acquire(queue)?;
    let mut bytes = [0; 4];
    queue.read(&buffer, 0, &mut bytes)?;
    Ok(f32::from_le_bytes(bytes))
}

#[test]
fn enqueueing_does_not_wait_and_acquiring_does() {
    let device = device();
    let copies = device.copy_queue("copies").unwrap();
    let (source, open) = Gated::new(7.0);
    let filling = upload(&device, &*copies, source);
    assert!(!filling.ready().is_complete(), "the gate is shut");
    open.send(()).unwrap();
    assert_eq!(first_number(&*device.compute_queue(), filling).unwrap(), 7.0);
}

#[test]
fn a_queue_waits_for_another_queues_event_on_its_own_side() {
    let device = device();
    let (first, second) = (device.copy_queue("first").unwrap(), device.copy_queue("second").unwrap());
    let (slow, open_slow) = Gated::new(1.0);
    let (quick, open_quick) = Gated::new(2.0);
    let slow = upload(&device, &*first, slow);
    second.wait(slow.ready()).unwrap();
    let quick = upload(&device, &*second, quick);
    open_quick.send(()).unwrap();
    assert!(!quick.ready().is_complete(), "`second` waits for `first`");
    open_slow.send(()).unwrap();
    assert_eq!(first_number(&*device.compute_queue(), quick).unwrap(), 2.0);
    assert!(slow.ready().is_complete(), "`second` can't have passed it otherwise");
}

#[test]
fn a_recorded_event_completes_after_everything_before_it() {
    let device = device();
    let copies = device.copy_queue("copies").unwrap();
    let (source, open) = Gated::new(3.0);
    let filling = upload(&device, &*copies, source);
    let event = copies.record();
    assert!(!event.is_complete());
    open.send(()).unwrap();
    event.synchronize().unwrap();
    assert!(filling.ready().is_complete());
}

#[test]
fn a_thread_that_panics_fails_its_copies_and_gives_their_memory_back() {
    let device = device();
    let copies = device.copy_queue("copies").unwrap();
    let (breaking, open) = Gated::new(f32::from_le_bytes([0xff, 0, 0, 0]));
    let (sound, _open) = Gated::new(1.0);
    let (broken, behind) = (upload(&device, &*copies, breaking), upload(&device, &*copies, sound));
    open.send(()).unwrap();
    for filling in [broken, behind] {
        let error = first_number(&*device.compute_queue(), filling).unwrap_err();
        assert_eq!(error.to_string(), "the queue `copies` stopped working; start again");
    }
    assert!(copies.synchronize().is_err());
    drop(copies);
    assert_eq!(device.ledger().used(), ByteCount::ZERO);
}

#[test]
fn a_rehearsal_books_what_a_run_books_and_holds_no_memory() {
    let device = device();
    let rehearsal = device.rehearsal();
    let (source, open) = Gated::new(5.0);
    drop(open);
    for device in [&device as &dyn Device, &*rehearsal] {
        let filling = upload(device, &*device.compute_queue(), source.clone());
        drop(filling.acquire(&*device.compute_queue()).unwrap());
    }
    assert_eq!(device.ledger().report().accounts, rehearsal.ledger().report().accounts);
    assert_eq!(device.ledger().peak(), rehearsal.ledger().peak());
    let huge = rehearsal.allocate(&*rehearsal.compute_queue(), rehearsal.ledger().account("a"), ByteCount(1 << 60));
    assert_eq!(huge.unwrap().size(), ByteCount(1 << 60));
}
