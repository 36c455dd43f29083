//! Outputs that take nothing, inputs that never end, and limits of the system: an exit code and a line, no more.
#![cfg(all(target_os = "linux", feature = "demo-model"))]

mod common;

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use common::{Bench, repository};
use fs_err as fs;

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

const STDOUT_FAILED: &str = "error: stdout can't be written: no storage space; send it elsewhere\n";

#[test]
fn a_full_stdout_is_a_failure() {
    let bench = Bench::new();
    let model = repository().join("assets/emoji64");
    let model = model.to_str().unwrap();
    let generate = ["generate", "red heart", "--steps", "1", "--out", "a.png"];
    for args in [
        &["--help"][..],
        &["--version"],
        &["inspect", model],
        &["inspect", model, "--json"],
        &generate,
        &[&generate[..], &["--json"]].concat(),
        &[&generate[..], &["--report", "memory"]].concat(),
    ] {
        let output = bench.command().args(args).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), STDOUT_FAILED, "{args:?}");
    }
}

#[test]
fn a_reader_that_has_closed_its_end_has_read_enough() {
    let bench = Bench::new();
    for args in [&["--help"][..], &["generate", "red heart", "--steps", "1", "--out", "a.png"]] {
        let mut program = bench.command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(program.stdout.take());
        let mut said = String::new();
        program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((program.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_full_stderr_does_not_change_the_exit_code() {
    let bench = Bench::new();
    for (args, code) in [(&["paint"][..], 2), (&["inspect", "missing"], 1), (&["generate", "x", "--steps", "0"], 2)] {
        let status = bench.command().args(args).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn words_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let output = bench.command().arg(std::ffi::OsStr::from_bytes(b"gener\xe9")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stderr.iter().filter(|&&byte| byte == b'\n').count(), 1);
}

#[test]
fn pipes_and_devices_are_no_pictures() {
    let bench = Bench::new();
    assert!(Command::new("mkfifo").arg(bench.path("fifo.png")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", bench.path("zero.png")).unwrap();
    for name in ["fifo.png", "zero.png"] {
        let outcome = bench.run(&["generate", "red heart", "--image", name]);
        let line = format!("error: `{name}` can't be read: it is no regular file; check --image\n");
        assert_eq!((outcome.code, outcome.stderr), (1, line));
    }
}

#[test]
fn a_file_that_may_not_grow_is_an_error_that_leaves_nothing() {
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 1; exec \"$0\" generate 'red heart' --steps 1 --out a.png", program])
        .current_dir(bench.folder())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "error: `a.png` can't be written: file too large; choose another place with --out\n");
    assert_eq!(bench.names(), [""; 0]);
}

#[test]
fn a_stray_temporary_file_blocks_nothing_and_stays() {
    let bench = Bench::new();
    fs::write(bench.path(".plimsoll-1.tmp"), "another's").unwrap();
    bench.generate(&["--out", "a.png"]);
    assert_eq!(bench.names(), [".plimsoll-1.tmp", "a.png"]);
}
