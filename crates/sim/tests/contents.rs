//! Contents follow copies, merges and kernels, and sources are read only when contents are simulated.

mod common;

use std::sync::Arc;

use common::{Broken, allocate, hollow_unit, slow_device, unit, unit_of};
use plimsoll_device::{Device, DeviceError};
use plimsoll_sim::{Content, SimDevice, SimOptions};

fn device() -> SimDevice {
    SimDevice::new(&SimOptions { contents: true, ..slow_device() })
}

#[test]
fn an_operation_sees_the_unit_with_its_adapters() {
    let device = device();
    let compute = device.compute_queue();
    let block = unit("block", 128, 7);
    let expected = Content::of_upload(&block).unwrap();
    let slot = allocate(&device, &*compute, 128);
    let mut slot = compute.upload(&block, slot).acquire(&*compute).unwrap();
    assert_eq!(device.content(&slot), Some(expected.clone()));
    device.merge(&*compute, &mut slot, 3, 1e-3).unwrap();
    device.merge(&*compute, &mut slot, 1, 1e-3).unwrap();
    let mut out = allocate(&device, &*compute, 64);
    let seen = device.compute(&*compute, "block", 1e-3, &[&slot], &mut [&mut out]).unwrap();
    assert_eq!(seen, [Content { adapters: vec![3, 1], ..expected.clone() }]);
    assert_eq!(device.content(&out), Some(Content::of_output("block", &seen)));
    assert_ne!(device.content(&out), Some(Content::of_output("block", std::slice::from_ref(&expected))));
    // A new owner finds nothing.
    drop(out);
    let out = allocate(&device, &*compute, 64);
    assert_eq!(device.content(&out), None);
    // A fresh copy has no adapters.
    let slot = compute.upload(&block, slot).acquire(&*compute).unwrap();
    assert_eq!(device.content(&slot), Some(expected));
    assert_eq!(device.violations(), []);
}

#[test]
fn contents_differ_in_bytes_and_do_not_depend_on_addresses() {
    let outputs = [(0, 1), (4096, 1), (0, 2)].map(|(shift, fill)| {
        let device = device();
        let compute = device.compute_queue();
        let _shift = allocate(&device, &*compute, shift);
        let slot = allocate(&device, &*compute, 100_000);
        let slot = compute.upload(&unit("block", 100_000, fill), slot).acquire(&*compute).unwrap();
        device.content(&slot).unwrap()
    });
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0], outputs[2]);
}

#[test]
fn a_source_that_fails_is_told_when_the_copy_is_waited_for() {
    let device = device();
    let (compute, copies) = (device.compute_queue(), device.copy_queue("copies").unwrap());
    let slot = allocate(&device, &*compute, 128);
    copies.wait(&compute.record()).unwrap();
    let filling = copies.upload(&unit_of("block", Arc::new(Broken(128))), slot);
    copies.synchronize().unwrap();
    let error = filling.acquire(&*compute).unwrap_err();
    assert!(matches!(error, DeviceError::Upload { ref unit, .. } if unit == "block"));
    assert_eq!(
        error.to_string(),
        "uploading `block` failed: reading 128 bytes at offset 8 of `unet.safetensors` failed: the file has become shorter"
    );
    assert_eq!(device.live_bytes(), device.ledger().used());
    assert_eq!(device.live_bytes().0, 0);
}

#[test]
fn without_contents_no_source_is_read() {
    let device = SimDevice::new(&slow_device());
    let compute = device.compute_queue();
    let slot = allocate(&device, &*compute, 128);
    let slot = compute.upload(&hollow_unit("block", 128), slot).acquire(&*compute).unwrap();
    assert_eq!(device.compute(&*compute, "block", 0.0, &[&slot], &mut []).unwrap(), []);
    assert_eq!((device.content(&slot), device.violations()), (None, Vec::new()));
}
