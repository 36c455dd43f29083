//! Where test data is in the repository.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).expect("this crate is at crates/testkit").to_owned()
}

/// A file or folder under `assets/`.
///
/// # Panics
/// If it isn't there.
#[track_caller]
pub fn asset(path: &str) -> PathBuf {
    existing(repository().join("assets").join(path))
}

/// A file or folder under `fixtures/`.
///
/// # Panics
/// If it isn't there.
#[track_caller]
pub fn fixture(path: &str) -> PathBuf {
    existing(repository().join("fixtures").join(path))
}

#[track_caller]
fn existing(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "`{}` is missing", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_the_workspace() {
        assert!(repository().join("crates/testkit/Cargo.toml").is_file());
    }
}
