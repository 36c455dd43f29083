//! The disk tier as a whole: on a file whose page cache, speed and faults a test decides, and on files of the system.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use plimsoll_device::ByteCount;
use proptest::prelude::*;

use crate::aligned_buffer::ALIGN_BYTES;
use crate::cache_room::Memory;
use crate::disk_file::DiskFile;
use crate::extents::EXTENT_BYTES;
use crate::file_bytes::FileBytes;
use crate::raw_file::RawFile;
use crate::read_ahead::DiskTier;

const PAGE: u64 = ALIGN_BYTES as u64;
const MIB: u64 = 1 << 20;
const EIO: i32 = 5;

/// A file whose disk and page cache the test sees.
struct FakeDisk {
    bytes: Mutex<Vec<u8>>,
    /// The pages in the page cache.
    resident: Mutex<BTreeSet<u64>>,
    direct_calls: AtomicUsize,
    plain_calls: AtomicUsize,
    /// Direct reads wait while it is shut.
    gate: (Mutex<bool>, Condvar),
    /// Reads give at most so many bytes.
    len_max: AtomicUsize,
    /// Reads of these bytes fail.
    damage: Mutex<Range<u64>>,
    no_direct: AtomicBool,
    no_warmth: AtomicBool,
}

struct FakeFile(Arc<FakeDisk>);

impl FakeDisk {
    fn new(len: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(contents(len)),
            resident: Mutex::default(),
            direct_calls: AtomicUsize::new(0),
            plain_calls: AtomicUsize::new(0),
            gate: (Mutex::new(true), Condvar::new()),
            len_max: AtomicUsize::new(usize::MAX),
            damage: Mutex::new(0..0),
            no_direct: AtomicBool::new(false),
            no_warmth: AtomicBool::new(false),
        })
    }

    fn open(self: &Arc<Self>, tier: &Arc<DiskTier>) -> Arc<DiskFile> {
        Arc::new(DiskFile::new(Box::new(FakeFile(self.clone())), tier.clone()).unwrap())
    }

    fn set_gate(&self, open: bool) {
        *self.gate.0.lock().unwrap() = open;
        self.gate.1.notify_all();
    }

    fn make_cold(&self) {
        self.resident.lock().unwrap().clear();
    }

    fn direct_calls(&self) -> usize {
        self.direct_calls.load(Ordering::Relaxed)
    }

    fn resident_pages(&self) -> usize {
        self.resident.lock().unwrap().len()
    }

    fn copy(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let damage = self.damage.lock().unwrap().clone();
        let bytes = self.bytes.lock().unwrap();
        let start = bytes.len().min(offset as usize);
        let len = out.len().min(bytes.len() - start).min(self.len_max.load(Ordering::Relaxed));
        if damage.start < offset + len as u64 && offset < damage.end {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        out[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }
}

impl RawFile for FakeFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.plain_calls.fetch_add(1, Ordering::Relaxed);
        let len = self.0.copy(offset, out)?;
        self.0.resident.lock().unwrap().extend(offset / PAGE..(offset + len as u64).div_ceil(PAGE));
        Ok(len)
    }

    fn read_on_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, out)
    }

    fn is_resident(&self, offset: u64) -> io::Result<bool> {
        if self.0.no_warmth.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // As the kernel does: a page that was missing is on its way now.
        Ok(!self.0.resident.lock().unwrap().insert(offset / PAGE))
    }

    fn read_resident_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let end = offset + out.len() as u64;
        let missing = {
            let resident = self.0.resident.lock().unwrap();
            (offset / PAGE..end.div_ceil(PAGE)).find(|page| !resident.contains(page))
        };
        let resident_end = missing.map_or(end, |page| (page * PAGE).max(offset));
        self.0.copy(offset, &mut out[..(resident_end - offset) as usize])
    }

    fn read_direct_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.direct_calls.fetch_add(1, Ordering::Relaxed);
        assert_eq!((offset % PAGE, out.len() as u64 % PAGE, out.as_ptr() as u64 % PAGE), (0, 0, 0), "alignment");
        if self.0.no_direct.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(22)); // EINVAL
        }
        let open = self.0.gate.1.wait_while(self.0.gate.0.lock().unwrap(), |open| !*open).unwrap();
        drop(open);
        self.0.copy(offset, out)
    }

    fn forget_page(&self, offset: u64) {
        self.0.resident.lock().unwrap().remove(&(offset / PAGE));
    }
}

/// Bytes that say where they are.
fn contents(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8).wrapping_mul(31) ^ (at >> 16).wrapping_mul(7)) as u8).collect()
}

/// A window of `extent_count` extents, and room in the page cache for `room_bytes`.
fn tier(extent_count: usize, room_bytes: u64) -> Arc<DiskTier> {
    let memory = Memory { total: 0, available: (1 << 30) + room_bytes };
    DiskTier::new(extent_count * EXTENT_BYTES as usize, Box::new(move || Some(memory)))
}

#[track_caller]
fn check_read(file: &DiskFile, range: Range<u64>, whole: &[u8]) {
    let mut out = vec![0; (range.end - range.start) as usize];
    file.read(range.start, &mut out, range.end).unwrap();
    assert!(out == whole[range.start as usize..range.end as usize], "{range:?}");
}

/// Reads panel by panel, as a copy queue does.
fn check_panels(file: &DiskFile, range: Range<u64>, panel: u64, whole: &[u8]) {
    for start in range.clone().step_by(panel as usize) {
        let end = (start + panel).min(range.end);
        let mut out = vec![0; (end - start) as usize];
        file.read(start, &mut out, range.end).unwrap();
        assert!(out == whole[start as usize..end as usize], "{start}");
    }
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_read_once_leaves_the_page_cache_alone() {
    let (len, tier) = (3 * EXTENT_BYTES + 4321, tier(4, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    check_panels(&file, 77..len, 50_000, &whole);
    assert_eq!((disk.resident_pages(), disk.direct_calls()), (0, 4));
    assert_eq!(file.reads().direct, ByteCount(len - 77));
    // Again, without room for it: the same.
    check_panels(&file, 77..len, 50_000, &whole);
    assert_eq!((disk.resident_pages(), disk.direct_calls()), (0, 8));
    assert_eq!(file.reads().cached, ByteCount::ZERO);
}

#[test]
fn what_is_streamed_and_fits_is_read_from_disk_twice_only() {
    let (len, tier) = (3 * EXTENT_BYTES + 4321, tier(4, 2 * EXTENT_BYTES));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    let mut direct_calls = Vec::new();
    for _ in 0..5 {
        check_panels(&file, 0..len, 50_000, &whole);
        direct_calls.push(disk.direct_calls());
    }
    // Two of four extents find room.
    assert_eq!(direct_calls, [4, 6, 8, 10, 12]);
    assert_eq!(disk.resident_pages() as u64, 2 * EXTENT_BYTES / PAGE);
    assert_eq!(file.reads().direct + file.reads().cached, ByteCount(5 * len));
    drop(file);
    assert!(tier.room.book(2 * EXTENT_BYTES), "a closed file gives its room back");
}

#[test]
fn warm_bytes_are_read_from_the_page_cache() {
    let (len, tier) = (2 * EXTENT_BYTES, tier(4, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    disk.resident.lock().unwrap().extend(0..len / PAGE);
    let file = disk.open(&tier);
    file.read_ahead(0..len);
    check_panels(&file, 5..len - 3, 70_000, &whole);
    check_read(&file, 0..len, &whole);
    assert_eq!((disk.direct_calls(), disk.plain_calls.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(file.reads().from_window, ByteCount::ZERO);
}

#[test]
fn half_warm_extents_are_read_from_both() {
    let (len, tier) = (EXTENT_BYTES, tier(4, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    disk.resident.lock().unwrap().extend(0..512);
    let file = disk.open(&tier);
    check_panels(&file, 0..len, 65_536, &whole);
    assert_eq!((disk.resident_pages(), disk.direct_calls()), (512, 1));
    assert_eq!((file.reads().cached, file.reads().direct), (ByteCount(512 * PAGE), ByteCount(512 * PAGE)));
}

#[test]
fn what_was_read_ahead_is_taken_from_the_window() {
    let (len, tier) = (3 * EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    file.read_ahead(100..len - 100);
    wait_until("reading ahead", || file.reads().direct == ByteCount(len - 200));
    check_panels(&file, 100..len - 100, 50_000, &whole);
    assert_eq!((disk.direct_calls(), disk.resident_pages()), (3, 0));
    assert_eq!(file.reads().from_window, ByteCount(len - 200));
    // Taken once, it is gone.
    check_read(&file, 100..200, &whole);
    assert_eq!(disk.direct_calls(), 4);
}

#[test]
fn a_reader_waits_for_the_block_that_is_being_read() {
    let (len, tier) = (EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    disk.set_gate(false);
    file.read_ahead(0..len);
    wait_until("the direct read", || disk.direct_calls() == 1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| check_panels(&file, 0..len, 100_000, &whole));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!reader.is_finished());
        disk.set_gate(true);
    });
    assert_eq!((disk.direct_calls(), file.reads().from_window), (1, ByteCount(len)));
}

#[test]
fn many_tensors_of_a_block_are_read_at_once() {
    let (len, tier) = (EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    disk.set_gate(false);
    // Both threads are busy with the first two; the hints behind them meet in the queue.
    file.read_ahead(2 * MIB..2 * MIB + 10);
    wait_until("a direct read", || disk.direct_calls() == 1);
    file.read_ahead(3 * MIB..3 * MIB + 10);
    wait_until("a direct read", || disk.direct_calls() == 2);
    let tensors: Vec<_> = (0..500).map(|idx| idx * 1000..idx * 1000 + 1000).collect();
    tensors.iter().for_each(|tensor| file.read_ahead(tensor.clone()));
    disk.set_gate(true);
    wait_until("reading ahead", || file.reads().direct == ByteCount(500 * 1000 + 20));
    tensors.iter().for_each(|tensor| check_read(&file, tensor.clone(), &whole));
    assert_eq!(disk.direct_calls(), 3);
}

#[test]
fn a_wrong_guess_blocks_nobody() {
    let (len, tier) = (12 * EXTENT_BYTES, tier(3, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    // Nobody ever comes for these: two extents fill what may be read ahead.
    file.read_ahead(0..3 * EXTENT_BYTES);
    wait_until("reading ahead", || file.reads().direct == ByteCount(2 * EXTENT_BYTES));
    // 32 threads read others, more than the window has buffers.
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (file, whole) = (&file, &whole);
            scope.spawn(move || {
                let start = (3 + thread % 9) * EXTENT_BYTES + thread * 1000;
                check_panels(file, start..start + 3 * MIB / 2, 200_000, whole);
            });
        }
    });
    // Hints are followed again behind those that nobody took.
    file.read_ahead(5 * EXTENT_BYTES..6 * EXTENT_BYTES);
    let before = file.reads().from_window;
    for _ in 0..40 {
        check_read(&file, 7 * EXTENT_BYTES..8 * EXTENT_BYTES, &whole);
        check_read(&file, 5 * EXTENT_BYTES..6 * EXTENT_BYTES, &whole);
        file.read_ahead(5 * EXTENT_BYTES..6 * EXTENT_BYTES);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(file.reads().from_window > before, "the window is stuck");
}

#[test]
fn reading_ahead_follows_a_reader_that_overtakes_it() {
    let (len, tier) = (6 * EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    for _ in 0..20 {
        file.read_ahead(0..len);
        check_panels(&file, 0..len, 300_000, &whole);
    }
    // Each extent once a pass, by whoever came first. A thread may be late by what it just claimed.
    assert!((120..=160).contains(&disk.direct_calls()), "{}", disk.direct_calls());
}

#[test]
fn what_was_passed_by_makes_room_for_new_hints() {
    let (len, tier) = (12 * EXTENT_BYTES, tier(3, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    file.read_ahead(0..2 * EXTENT_BYTES);
    wait_until("reading ahead", || file.reads().direct == ByteCount(2 * EXTENT_BYTES));
    // One reader, who needs no more than the buffer that is left to readers.
    check_panels(&file, 2 * EXTENT_BYTES..11 * EXTENT_BYTES, 100_000, &whole);
    file.read_ahead(11 * EXTENT_BYTES..len);
    wait_until("reading ahead", || file.reads().direct == ByteCount(len));
    check_read(&file, 11 * EXTENT_BYTES..len, &whole);
    assert_eq!(file.reads().from_window, ByteCount(EXTENT_BYTES));
}

#[test]
fn what_readers_have_read_is_not_read_ahead_any_more() {
    let (len, tier) = (6 * EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    disk.set_gate(false);
    file.read_ahead(0..EXTENT_BYTES);
    file.read_ahead(2 * EXTENT_BYTES..3 * EXTENT_BYTES);
    wait_until("direct reads", || disk.direct_calls() == 2);
    // Both threads are busy, so these wait; a reader finds them in the page cache meanwhile.
    file.read_ahead(3 * EXTENT_BYTES..5 * EXTENT_BYTES);
    disk.resident.lock().unwrap().extend(3 * EXTENT_BYTES / PAGE..5 * EXTENT_BYTES / PAGE);
    check_panels(&file, 3 * EXTENT_BYTES..5 * EXTENT_BYTES, 100_000, &whole);
    disk.make_cold();
    file.read_ahead(5 * EXTENT_BYTES..len);
    disk.set_gate(true);
    wait_until("the last of the hints", || file.reads().direct >= ByteCount(3 * EXTENT_BYTES));
    check_panels(&file, 5 * EXTENT_BYTES..len, 100_000, &whole);
    assert_eq!((disk.direct_calls(), file.reads().direct), (3, ByteCount(3 * EXTENT_BYTES)));
}

#[test]
fn beginnings_that_nobody_reads_on_from_do_not_stop_reading_ahead() {
    let (len, tier) = (20 * EXTENT_BYTES, tier(4, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    // Rows of a table: each leaves the rest of its extent in the window.
    for extent in 0..10 {
        let (start, mut row) = (extent * EXTENT_BYTES + 100, [0; 100]);
        file.read(start, &mut row, len).unwrap();
        assert!(row == whole[start as usize..][..100]);
    }
    for _ in 0..3 {
        file.read_ahead(10 * EXTENT_BYTES..len);
        check_panels(&file, 10 * EXTENT_BYTES..len, 100_000, &whole);
    }
    let before = file.reads().from_window;
    disk.set_gate(false);
    file.read_ahead(10 * EXTENT_BYTES..len);
    std::thread::scope(|scope| {
        scope.spawn(|| check_panels(&file, 10 * EXTENT_BYTES..len, 100_000, &whole));
        std::thread::sleep(Duration::from_millis(20));
        disk.set_gate(true);
    });
    assert!(file.reads().from_window > before, "the window is stuck");
}

#[test]
fn errors_reach_those_who_want_the_bytes_and_are_forgotten() {
    let (len, tier) = (2 * EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let open = || FileBytes::on_disk("a file".to_owned(), Box::new(FakeFile(disk.clone())), tier.clone()).unwrap();
    let mut out = vec![0; 500];
    *disk.damage.lock().unwrap() = 1000..1001;
    let mut bytes = open();
    for reads_ahead in [false, true] {
        bytes = open();
        if reads_ahead {
            bytes.read_ahead(0..len);
            wait_until("reading ahead", || bytes.reads().direct == ByteCount(EXTENT_BYTES));
        }
        for _ in 0..2 {
            let error = bytes.read_tensor_at(800, &mut out, len).unwrap_err();
            assert_eq!((error.offset, error.len), (800, 500));
            assert_eq!(
                error.to_string(),
                "reading 500 bytes at offset 800 of `a file` failed: Input/output error (os error 5); check the medium \
                 and run again"
            );
        }
        // The neighbors in the same block are unharmed.
        bytes.read_tensor_at(1001, &mut out, len).unwrap();
        assert!(out == whole[1001..1501]);
    }
    *disk.damage.lock().unwrap() = 0..0;
    bytes.read_tensor_at(800, &mut out, len).unwrap();
    assert!(out == whole[800..1300]);
}

#[test]
fn a_reader_that_waits_for_a_failing_read_gets_its_own_error() {
    let (len, tier) = (EXTENT_BYTES, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let file = disk.open(&tier);
    disk.set_gate(false);
    file.read_ahead(0..len);
    wait_until("the direct read", || disk.direct_calls() == 1);
    *disk.damage.lock().unwrap() = 0..10;
    std::thread::scope(|scope| {
        let fails = scope.spawn(|| file.read(5, &mut [0; 100], len).unwrap_err().raw_os_error());
        let reads = scope.spawn(|| check_read(&file, MIB..2 * MIB, &whole));
        std::thread::sleep(Duration::from_millis(10));
        disk.set_gate(true);
        assert_eq!(fails.join().unwrap(), Some(EIO));
        reads.join().unwrap();
    });
}

#[test]
fn file_systems_without_direct_reads_are_asked_once() {
    let (len, tier) = (3 * EXTENT_BYTES + 1, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    disk.no_direct.store(true, Ordering::Relaxed);
    let file = disk.open(&tier);
    check_panels(&file, 0..len, 300_000, &whole);
    assert_eq!((disk.direct_calls(), file.reads().direct), (1, ByteCount::ZERO));
    disk.make_cold();
    file.read_ahead(0..len);
    wait_until("reading ahead", || file.reads().cached.0 >= 2 * len);
    check_panels(&file, 0..len, 300_000, &whole);
    assert_eq!((disk.direct_calls(), file.reads().from_window), (1, ByteCount(len)));
}

#[test]
fn without_word_of_the_page_cache_everything_goes_through_it() {
    let (len, tier) = (EXTENT_BYTES + 1, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    disk.no_warmth.store(true, Ordering::Relaxed);
    let file = disk.open(&tier);
    for _ in 0..3 {
        file.read_ahead(0..len);
        check_panels(&file, 0..len, 300_000, &whole);
    }
    assert_eq!((disk.direct_calls(), file.reads().cached), (0, ByteCount(3 * len)));
}

#[test]
fn a_file_that_shrinks_or_grows_gives_what_it_has() {
    let (len, tier) = (2 * EXTENT_BYTES + 100, tier(8, 0));
    let (disk, whole) = (FakeDisk::new(len), contents(len));
    let bytes = FileBytes::on_disk("a file".to_owned(), Box::new(FakeFile(disk.clone())), tier).unwrap();
    let cut = EXTENT_BYTES + 5000;
    disk.bytes.lock().unwrap().truncate(cut as usize);
    let mut out = vec![0; 4000];
    for _ in 0..2 {
        bytes.read_tensor_at(cut - 4000, &mut out, len).unwrap();
        assert!(out == whole[cut as usize - 4000..cut as usize]);
        let error = bytes.read_tensor_at(cut - 3999, &mut out, len).unwrap_err();
        assert!(error.reason.ends_with("and has 4199304 now; something cut it off, restore it"), "{error}");
        bytes.read_tensor_at(len - 50, &mut [0; 50], len).unwrap_err();
        bytes.read_ahead(0..len);
    }
    *disk.bytes.lock().unwrap() = contents(len + 10_000);
    disk.make_cold();
    bytes.read_tensor_at(cut - 3999, &mut out, len).unwrap();
    assert!(out == whole[cut as usize - 3999..][..4000]);
}

#[test]
fn threads_and_memory_end_with_the_last_file() {
    let tier = tier(3, 0);
    let window = Arc::downgrade(&tier.window);
    let (disk, other) = (FakeDisk::new(8 * EXTENT_BYTES), FakeDisk::new(10));
    let (file, other) = (disk.open(&tier), other.open(&tier));
    drop(tier);
    disk.set_gate(false);
    file.read_ahead(0..8 * EXTENT_BYTES);
    wait_until("direct reads", || disk.direct_calls() == 2);
    // Closed in the middle of reading, with hints that wait.
    drop(file);
    check_read(&other, 2..10, &contents(10));
    drop(other);
    disk.set_gate(true);
    wait_until("the end of the threads", || window.upgrade().is_none());
    assert_eq!(disk.direct_calls(), 2);
}

#[test]
fn nothing_is_read_for_nothing() {
    let disk = FakeDisk::new(100);
    let file = disk.open(&tier(8, 0));
    for offset in [0, 50, 100] {
        file.read(offset, &mut [], offset).unwrap();
        file.read_ahead(offset..offset);
    }
    assert_eq!((disk.direct_calls(), disk.resident_pages()), (0, 0));
    let empty = FakeDisk::new(0).open(&tier(8, 0));
    empty.read(0, &mut [], 0).unwrap();
    assert!(empty.read(0, &mut [0], 1).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Read { at: prop::sample::Index, len: usize, on: usize },
    ReadAhead { at: prop::sample::Index, len: usize },
    MakeCold,
    MakeWarm { at: prop::sample::Index, len: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![0..10_000usize, 0..3_000_000usize, 0..14_000_000usize];
    let step = prop_oneof![
        6 => (any::<prop::sample::Index>(), len(), len()).prop_map(|(at, len, on)| Step::Read { at, len, on }),
        3 => (any::<prop::sample::Index>(), len()).prop_map(|(at, len)| Step::ReadAhead { at, len }),
        1 => Just(Step::MakeCold),
        1 => (any::<prop::sample::Index>(), len()).prop_map(|(at, len)| Step::MakeWarm { at, len }),
    ];
    prop::collection::vec(step, 1..25)
}

/// Takes the steps and compares all that is read with `whole`.
fn check_steps(
    file: &Arc<DiskFile>,
    whole: &[u8],
    steps: Vec<Step>,
    make_cold: impl Fn(),
    make_warm: impl Fn(Range<u64>),
) {
    let place = |at: prop::sample::Index, len: usize| {
        let start = at.index(whole.len() + 1);
        start as u64..whole.len().min(start + len) as u64
    };
    for step in steps {
        match step {
            Step::Read { at, len, on } => {
                let range = place(at, len);
                let mut out = vec![0; (range.end - range.start) as usize];
                file.read(range.start, &mut out, (range.end + on as u64).min(whole.len() as u64)).unwrap();
                assert!(out == whole[range.start as usize..range.end as usize], "{range:?}");
            }
            Step::ReadAhead { at, len } => file.read_ahead(place(at, len)),
            Step::MakeCold => make_cold(),
            Step::MakeWarm { at, len } => make_warm(place(at, len)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_steps_read_the_bytes_of_the_file(
        len in 1..13_000_000u64,
        steps in steps(),
        extent_count in 2..5usize,
        room_extents in 0..4u64,
        len_max in prop_oneof![Just(usize::MAX), 5_000..1_000_000usize],
    ) {
        let (disk, whole) = (FakeDisk::new(len), contents(len));
        disk.len_max.store(len_max, Ordering::Relaxed);
        let file = disk.open(&tier(extent_count, room_extents * EXTENT_BYTES));
        let warm = |range: Range<u64>| disk.resident.lock().unwrap().extend(range.start / PAGE..range.end.div_ceil(PAGE));
        check_steps(&file, &whole, steps, || disk.make_cold(), warm);
    }
}

/// On the real file system, which may or may not read past its page cache.
#[cfg(target_os = "linux")]
mod on_the_system {
    use std::fs::{self, File};

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::raw_file::SystemFile;

    const LEN: u64 = 9 * MIB + 1234;

    struct Fixture {
        folder: tempfile::TempDir,
        handle: File,
        whole: Vec<u8>,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("file"), contents(LEN)).unwrap();
            let handle = File::open(folder.path().join("file")).unwrap();
            handle.sync_all().unwrap();
            let whole = fs::read(folder.path().join("file")).unwrap();
            Self { folder, handle, whole }
        }

        fn open(&self, tier: &Arc<DiskTier>) -> Arc<DiskFile> {
            let file = File::open(self.folder.path().join("file")).unwrap();
            Arc::new(DiskFile::new(Box::new(SystemFile::new(file)), tier.clone()).unwrap())
        }

        fn make_cold(&self) {
            fadvise(&self.handle, 0, None, Advice::DontNeed).unwrap();
        }

        fn make_warm(&self, range: Range<u64>) {
            let mut out = vec![0; (range.end - range.start) as usize];
            std::os::unix::fs::FileExt::read_exact_at(&self.handle, &mut out, range.start).unwrap();
        }
    }

    #[test]
    fn threads_read_all_of_a_file_in_any_state() {
        let fixture = Fixture::new();
        for round in 0..4 {
            let file = fixture.open(&tier(3, (round % 2) * 2 * EXTENT_BYTES));
            fixture.make_cold();
            std::thread::scope(|scope| {
                for thread in 0..32 {
                    let (file, whole) = (&file, &fixture.whole);
                    scope.spawn(move || {
                        let start = thread * LEN / 40;
                        if thread % 3 == round % 3 {
                            file.read_ahead(start..LEN);
                        }
                        check_panels(file, start..LEN, 40_000 + 9_000 * thread, whole);
                    });
                }
            });
        }
    }

    #[test]
    fn a_file_that_is_cut_off_and_written_meanwhile_never_panics() {
        let fixture = Fixture::new();
        let file = fixture.open(&tier(3, 0));
        let path = fixture.folder.path().join("file");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for len in [LEN / 3, 0, LEN * 2, LEN] {
                        File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
                    }
                }
            });
            let readers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let file = &file;
                    scope.spawn(move || {
                        let mut out = vec![0; 100_000];
                        for pass in 0..30 {
                            file.read_ahead(0..LEN);
                            let offset = (thread * MIB + pass * 123_456) % (LEN - 100_000);
                            if let Err(error) = file.read(offset, &mut out, LEN) {
                                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                            }
                        }
                    })
                })
                .collect();
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            stop.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn any_steps_read_what_the_system_reads(steps in steps(), room_extents in 0..4u64) {
            let fixture = Fixture::new();
            let file = fixture.open(&tier(3, room_extents * EXTENT_BYTES));
            check_steps(&file, &fixture.whole, steps, || fixture.make_cold(), |range| fixture.make_warm(range));
        }
    }
}
