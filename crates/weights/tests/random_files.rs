//! Random files, random damage to right files, and the `safetensors` crate as the oracle.

use std::collections::HashMap;

use plimsoll_device::HostBytes;
use plimsoll_weights::{StoredDType, TensorFile};
use proptest::collection::{btree_map, hash_map, vec};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

/// Every number format, as the oracle calls it, and its bytes. Those of less than a byte are left to the table of
/// hostile headers.
const DTYPES: [(Dtype, &str, usize); 18] = [
    (Dtype::BOOL, "BOOL", 1),
    (Dtype::U8, "U8", 1),
    (Dtype::I8, "I8", 1),
    (Dtype::F8_E5M2, "F8_E5M2", 1),
    (Dtype::F8_E4M3, "F8_E4M3", 1),
    (Dtype::F8_E8M0, "F8_E8M0", 1),
    (Dtype::F8_E4M3FNUZ, "F8_E4M3FNUZ", 1),
    (Dtype::I16, "I16", 2),
    (Dtype::U16, "U16", 2),
    (Dtype::F16, "F16", 2),
    (Dtype::BF16, "BF16", 2),
    (Dtype::I32, "I32", 4),
    (Dtype::U32, "U32", 4),
    (Dtype::F32, "F32", 4),
    (Dtype::C64, "C64", 8),
    (Dtype::F64, "F64", 8),
    (Dtype::I64, "I64", 8),
    (Dtype::U64, "U64", 8),
];

#[derive(Clone, Debug)]
struct Stored {
    dtype_idx: usize,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn stored() -> impl Strategy<Value = Stored> {
    (0..DTYPES.len(), vec(0usize..4, 0..4), any::<u8>()).prop_map(|(dtype_idx, shape, seed)| {
        let len = shape.iter().product::<usize>() * DTYPES[dtype_idx].2;
        let bytes = (0..len).map(|idx| seed.wrapping_add((idx * 37) as u8)).collect();
        Stored { dtype_idx, shape, bytes }
    })
}

/// A file by the oracle's writer, and what is in it.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    tensors: Vec<(String, Stored)>,
    metadata: Option<HashMap<String, String>>,
}

fn written() -> impl Strategy<Value = Written> {
    let tensors = btree_map(".{0,12}", stored(), 0..6);
    // Not empty: the oracle writes no JSON for an empty map of metadata without a tensor.
    let metadata = proptest::option::of(hash_map(".{0,8}", ".{0,8}", 1..3));
    (tensors, metadata).prop_map(|(tensors, metadata)| {
        let tensors: Vec<(String, Stored)> = tensors.into_iter().filter(|(name, _)| name != "__metadata__").collect();
        let views = tensors.iter().map(|(name, stored)| {
            let dtype = DTYPES[stored.dtype_idx].0;
            (name.clone(), TensorView::new(dtype, stored.shape.clone(), &stored.bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, metadata.clone()).unwrap();
        Written { bytes, tensors, metadata }
    })
}

/// Opens `bytes` and reads everything that it claims to have. What opens here must open with the oracle, and hold
/// the same bytes.
fn open_and_compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(file) = TensorFile::in_memory("random", bytes.to_vec()) else {
        return Ok(());
    };
    let oracle = safetensors::SafeTensors::deserialize(bytes)
        .map_err(|error| TestCaseError::fail(format!("opens, but the oracle says: {error}")))?;
    prop_assert_eq!(file.header().tensors().len(), oracle.len());
    for tensor in file.tensors() {
        let view = oracle.tensor(&tensor.name).unwrap();
        prop_assert_eq!(&tensor.shape, view.shape());
        prop_assert_eq!(tensor.dtype.to_string(), view.dtype().to_string());
        prop_assert_eq!(tensor.read_all().unwrap(), view.data());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_the_oracle_writes_is_read_back(Written { bytes, tensors, metadata } in written()) {
        let file = TensorFile::in_memory("written", bytes).unwrap();
        prop_assert_eq!(file.header().tensors().len(), tensors.len());
        prop_assert_eq!(
            file.header().metadata().clone().into_iter().collect::<HashMap<_, _>>(),
            metadata.unwrap_or_default()
        );
        for (name, stored) in tensors {
            let tensor = file.tensors().find(|tensor| tensor.name == name).unwrap();
            let (_, dtype, _) = DTYPES[stored.dtype_idx];
            prop_assert_eq!(tensor.dtype, StoredDType::from_name(dtype).unwrap());
            prop_assert_eq!(&tensor.shape, &stored.shape);
            prop_assert_eq!(tensor.bytes.as_slice(), Some(stored.bytes.as_slice()));
            prop_assert_eq!(tensor.read_all().unwrap(), stored.bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        open_and_compare(&bytes)?;
    }

    #[test]
    fn random_headers_never_panic(header in r#"\{[\{\}\[\]",:a0-9dtypeshaF32_\\u -]{0,120}"#, data_len in 0usize..20) {
        let len = (header.len() as u64).to_le_bytes();
        open_and_compare(&[&len, header.as_bytes(), &vec![0; data_len]].concat())?;
    }

    #[test]
    fn damaged_files_never_panic(
        Written { bytes, .. } in written(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut bytes = bytes;
        for (place, byte, how) in damage {
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        open_and_compare(&bytes)?;
    }

    /// Digits, brackets and quotes are what makes a header mean something else, so these get changed more often.
    #[test]
    fn damaged_digits_never_panic(
        Written { bytes, .. } in written(),
        damage in vec((any::<prop::sample::Index>(), prop::sample::select(&b"0123456789,[]{}\":-.e"[..])), 1..4),
    ) {
        let mut bytes = bytes;
        let places: Vec<usize> = (8..bytes.len()).filter(|&place| bytes[place].is_ascii_digit()).collect();
        for (place, byte) in damage.into_iter().filter(|_| !places.is_empty()) {
            bytes[places[place.index(places.len())]] = byte;
        }
        open_and_compare(&bytes)?;
    }

    #[test]
    fn every_cut_is_noticed(Written { bytes, .. } in written(), cut in any::<prop::sample::Index>()) {
        let len = cut.index(bytes.len());
        prop_assert!(TensorFile::in_memory("cut", bytes[..len].to_vec()).is_err());
    }
}

#[test]
fn ranges_of_a_tensor_are_read() {
    let data: Vec<u8> = (0..24).collect();
    let view = TensorView::new(Dtype::F32, vec![2, 3], &data).unwrap();
    let bytes = safetensors::serialize([("x", view)], None).unwrap();
    let tensor = TensorFile::in_memory("x", bytes).unwrap().tensors().next().unwrap();
    let mut out = [0; 5];
    HostBytes::read_at(&*tensor.bytes, 3..8, &mut out).unwrap();
    assert_eq!(out, [3, 4, 5, 6, 7]);
}
