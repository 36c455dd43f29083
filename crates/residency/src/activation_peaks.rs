//! What activations took at once, measured, and kept from run to run in a small file.
//!
//! The file is a cache and anybody's to damage: what is not understood in it is ignored, with one warning, and what is
//! believed only ever makes a reservation larger, within bounds. The line holds whatever it says.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_device::ByteCount;
use serde::{Deserialize, Serialize};

/// A larger file is not ours.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Measurements that are kept; beyond that the oldest go.
const ENTRIES_MAX: usize = 1000;
/// Longer names are not ours.
const NAME_BYTES_MAX: usize = 256;
/// A measurement beyond so many times what was rehearsed belongs to something else.
const FACTOR_MAX: u64 = 2;

/// What a measurement belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakKey {
    /// The component's [fingerprint](crate::Component::fingerprint).
    pub component: String,
    /// The sizes that the activations depend on.
    pub shape: String,
    /// Their format.
    pub dtype: String,
    /// The device and its kernels.
    pub device: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: PeakKey,
    bytes: u64,
}

/// The most that activations and scratch memory have taken at once, by component, shape, dtype and device.
pub struct ActivationPeaks {
    path: Option<PathBuf>,
    entries: Mutex<Vec<Entry>>,
}

impl ActivationPeaks {
    /// Kept in no file.
    pub fn forgetful() -> Self {
        Self { path: None, entries: Mutex::default() }
    }

    /// Kept in the file at `path`, which need not exist. With a warning if it is not what this program writes.
    pub fn open(path: &Path) -> (Self, Option<String>) {
        let (entries, warning) = read(path);
        (Self { path: Some(path.to_owned()), entries: Mutex::new(entries) }, warning)
    }

    /// What to reserve: what was `rehearsed`, or what was measured if that is more, and plausible.
    pub fn reserve(&self, key: &PeakKey, rehearsed: ByteCount) -> ByteCount {
        let measured = self.lock().iter().find(|entry| entry.key == *key).map(|entry| ByteCount(entry.bytes));
        let plausible = measured.filter(|measured| measured.0 <= rehearsed.0.saturating_mul(FACTOR_MAX));
        plausible.map_or(rehearsed, |measured| measured.max(rehearsed))
    }

    /// Takes in a measurement. The largest counts, whatever a run that was broken off has measured.
    pub fn learn(&self, key: &PeakKey, measured: ByteCount) {
        let mut entries = self.lock();
        let known = entries.iter().position(|entry| entry.key == *key);
        if known.is_some_and(|position| entries[position].bytes >= measured.0) {
            return;
        }
        known.map(|position| entries.remove(position));
        entries.push(Entry { key: key.clone(), bytes: measured.0 });
        let surplus = entries.len().saturating_sub(ENTRIES_MAX);
        entries.drain(..surplus);
    }

    /// Writes the file, if there is one and something was learnt that it doesn't have. It appears complete or not at all.
    ///
    /// # Errors
    /// When the folder or the file can't be written; what was learnt is then gone with this run.
    pub fn save(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let entries = self.lock();
        let (before, _) = read(path);
        let is_new = |entry: &&Entry| !before.iter().any(|old| old.key == entry.key && old.bytes == entry.bytes);
        if entries.iter().find(is_new).is_none() {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        fs_err::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, &*entries)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entries of the file that are understood, and what to say about the others.
fn read(path: &Path) -> (Vec<Entry>, Option<String>) {
    let warning = |what: &str| Some(format!("`{}` {what}; it is a cache and can be deleted", path.display()));
    let bytes = match fs_err::metadata(path) {
        Ok(metadata) if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX => {
            return (Vec::new(), warning("is no file of activation peaks and is ignored"));
        }
        Ok(_) => fs_err::read(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (Vec::new(), None),
        Err(error) => Err(error),
    };
    let Ok(bytes) = bytes else { return (Vec::new(), warning("can't be read and is ignored")) };
    let Ok(values) = serde_json::from_slice::<Vec<serde_json::Value>>(&bytes) else {
        return (Vec::new(), warning("is no file of activation peaks and is ignored"));
    };
    let count = values.len();
    let entries = values.into_iter().filter_map(|value| serde_json::from_value(value).ok());
    let entries: Vec<Entry> = entries.filter(is_plausible).take(ENTRIES_MAX).collect();
    let ignored = count - entries.len();
    let warning = if ignored > 0 { warning(&format!("has {ignored} entries that are ignored")) } else { None };
    (entries, warning)
}

fn is_plausible(entry: &Entry) -> bool {
    let PeakKey { component, shape, dtype, device } = &entry.key;
    [component, shape, dtype, device].iter().all(|name| name.len() <= NAME_BYTES_MAX) && entry.bytes > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(shape: &str) -> PeakKey {
        let owned = |text: &str| text.to_owned();
        PeakKey { component: owned("unet-1"), shape: owned(shape), dtype: owned("f32"), device: owned("cpu:0") }
    }

    #[test]
    fn what_was_measured_is_reserved_in_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/peaks.json");
        let (peaks, warning) = ActivationPeaks::open(&path);
        assert_eq!(warning, None);
        peaks.learn(&key("2x8x8"), ByteCount(150));
        peaks.learn(&key("2x8x8"), ByteCount(120));
        peaks.save().unwrap();
        let (peaks, warning) = ActivationPeaks::open(&path);
        assert_eq!(warning, None);
        assert_eq!(peaks.reserve(&key("2x8x8"), ByteCount(100)), ByteCount(150), "the largest");
        assert_eq!(peaks.reserve(&key("2x8x8"), ByteCount(180)), ByteCount(180), "never less than rehearsed");
        assert_eq!(peaks.reserve(&key("2x8x8"), ByteCount(10)), ByteCount(10), "what is far off is somebody else's");
        assert_eq!(peaks.reserve(&key("2x9x8"), ByteCount(100)), ByteCount(100), "another shape");
    }

    #[test]
    fn a_damaged_file_is_ignored_with_one_warning_and_replaced() {
        let good = r#"{"component":"unet-1","shape":"s","dtype":"f32","device":"cpu:0","bytes":150}"#;
        let long = "x".repeat(300);
        for (text, kept, said) in [
            ("", 0, "is no file of activation peaks"),
            ("{}", 0, "is no file of activation peaks"),
            ("[", 0, "is no file of activation peaks"),
            (&format!("[{good}, 3, {{}}]"), 1, "has 2 entries that are ignored"),
            (&format!("[{}]", good.replace("150", "-1")), 0, "has 1 entries that are ignored"),
            (&format!("[{}]", good.replace("150", "0")), 0, "has 1 entries that are ignored"),
            (&format!("[{}]", good.replace("150", "1e99")), 0, "has 1 entries that are ignored"),
            (&format!("[{}]", good.replace("unet-1", &long)), 0, "has 1 entries that are ignored"),
            (&format!("[{}]", good.replace("\"s\"", "7")), 0, "has 1 entries that are ignored"),
            (&" ".repeat(2 << 20), 0, "is no file of activation peaks"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("peaks.json");
            std::fs::write(&path, text).unwrap();
            let (peaks, warning) = ActivationPeaks::open(&path);
            assert!(warning.as_ref().is_some_and(|warning| warning.contains(said)), "{text:.40}: {warning:?}");
            assert_eq!(peaks.lock().len(), kept);
            peaks.learn(&key("new"), ByteCount(1));
            peaks.save().unwrap();
            assert_eq!(ActivationPeaks::open(&path).1, None, "what is written is understood");
        }
    }

    #[test]
    fn a_folder_in_its_place_is_ignored_too() {
        let folder = tempfile::tempdir().unwrap();
        let (peaks, warning) = ActivationPeaks::open(folder.path());
        assert!(warning.is_some());
        peaks.learn(&key("s"), ByteCount(1));
        assert!(peaks.save().is_err());
    }

    #[test]
    fn the_oldest_measurements_go_first() {
        let peaks = ActivationPeaks::forgetful();
        for idx in 0..ENTRIES_MAX + 5 {
            peaks.learn(&key(&idx.to_string()), ByteCount(150));
        }
        let kept = |idx: usize| peaks.reserve(&key(&idx.to_string()), ByteCount(100)) == ByteCount(150);
        assert!(!kept(4) && kept(5) && kept(ENTRIES_MAX + 4));
    }
}
