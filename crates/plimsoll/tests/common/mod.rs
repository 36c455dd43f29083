//! Runs the program in an empty folder.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fs_err as fs;
use serde_json::Value;
use tempfile::TempDir;

/// An empty folder, and the program in it.
pub(crate) struct Bench {
    folder: TempDir,
    cache: TempDir,
}

/// What a run of the program gave.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the program keeps what it has learnt.
    pub(crate) fn cache(&self) -> &Path {
        self.cache.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Runs the program in the folder.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        self.run_with(args, &[])
    }

    /// Runs the program in the folder, with variables in its environment.
    pub(crate) fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let mut command = self.command();
        let Output { status, stdout, stderr } = command.args(args).envs(variables.iter().copied()).output().unwrap();
        Outcome {
            code: status.code().expect("the program is not ended by a signal"),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// The program, about to be run in the folder.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.current_dir(self.folder()).env_remove("PLIMSOLL_CPU").env("PLIMSOLL_CACHE", self.cache.path());
        command
    }

    /// Runs `generate` with a few steps at one thread; it must succeed.
    pub(crate) fn generate(&self, args: &[&str]) -> Outcome {
        let args: Vec<&str> = ["generate", "red heart", "--steps", "2", "--seed", "42", "--threads", "1"]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let outcome = self.run(&args);
        assert_eq!(outcome.code, 0, "{args:?}: {}", outcome.stderr);
        outcome
    }

    /// The names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Outcome {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Pixels and text chunks of a PNG.
pub(crate) struct Png {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) rgb: Vec<u8>,
    pub(crate) text: Vec<(String, String)>,
}

impl Png {
    pub(crate) fn read(path: &Path) -> Self {
        let decoder = png::Decoder::new(std::io::Cursor::new(fs::read(path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut rgb).unwrap();
        assert_eq!((frame.color_type, frame.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        let info = reader.info();
        let latin1 = info.uncompressed_latin1_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.text.clone()));
        let utf8 = info.utf8_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap()));
        let text = latin1.chain(utf8).collect();
        Self { width: frame.width, height: frame.height, rgb, text }
    }

    pub(crate) fn chunk(&self, keyword: &str) -> &str {
        &self.text.iter().find(|(name, _)| name == keyword).unwrap_or_else(|| panic!("no chunk {keyword}")).1
    }
}

/// The repository's folder.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
