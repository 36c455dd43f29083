//! What the program learns from run to run: small files that can be deleted at any time.
//!
//! In `$PLIMSOLL_CACHE` or, without it, in `plimsoll` in the system's place for caches. A cache that can't be used costs a
//! warning, never a run.

use std::path::PathBuf;

use plimsoll_residency::ActivationPeaks;

use crate::console;

/// The environment variable that moves the folder.
const VARIABLE: &str = "PLIMSOLL_CACHE";

/// What earlier runs have measured of activations.
pub(crate) fn activation_peaks() -> ActivationPeaks {
    let Some(folder) = folder() else { return ActivationPeaks::forgetful() };
    let (peaks, warning) = ActivationPeaks::open(&folder.join("activation_peaks.json"));
    if let Some(warning) = warning {
        console::warn(&warning);
    }
    peaks
}

/// Keeps what was learnt.
pub(crate) fn save(peaks: &ActivationPeaks) {
    if let Err(error) = peaks.save() {
        console::warn(&format!("what was measured of activations can't be kept: {error}"));
    }
}

fn folder() -> Option<PathBuf> {
    let chosen = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    chosen.or_else(|| Some(dirs::cache_dir()?.join("plimsoll")))
}
