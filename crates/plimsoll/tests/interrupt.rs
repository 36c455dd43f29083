//! An interrupt ends the program at once and leaves nothing behind.
#![cfg(all(unix, feature = "demo-model"))]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::Bench;

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let bench = Bench::new();
    let mut program = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["generate", "red heart", "--steps", "500", "--seed", "7", "--count", "2", "--out", "folder"])
        .current_dir(bench.folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "seed 7\n", "the work has begun");
    assert_eq!(bench.names(), ["folder"]);
    let sent = Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(program.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    program.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "error: interrupted\n");
    assert_eq!(bench.names(), [""; 0]);
}
