//! A signal ends the program at once, with the code that shells count, and leaves nothing behind.
#![cfg(all(unix, feature = "demo-model"))]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::Bench;

/// A program that draws for a long time, begun in a folder of its own.
struct Drawing {
    bench: Bench,
    program: Child,
}

impl Drawing {
    /// Starts the program by a shell, after `before`.
    fn start(before: &str, stderr: Stdio) -> Self {
        let bench = Bench::new();
        let script = format!("{before} exec \"$0\" \"$@\"");
        let mut program = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_plimsoll"), "generate", "red heart", "--seed", "7"])
            .args(["--steps", "900", "--count", "2", "--out", "folder"])
            .current_dir(bench.folder())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "seed 7\n", "the work has begun");
        assert_eq!(bench.names(), ["folder"]);
        Self { bench, program }
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.program.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn check_end(mut self, code: i32, line: &str) {
        assert_eq!(self.program.wait().unwrap().code(), Some(code));
        let mut said = String::new();
        if let Some(mut stderr) = self.program.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        assert_eq!(said, line);
        assert_eq!(self.bench.names(), [""; 0]);
    }
}

fn hang_ups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for (signal, code, line) in [
        ("-INT", 130, "error: interrupted\n"),
        ("-TERM", 143, "error: terminated\n"),
        ("-HUP", 129, "error: hung up\n"),
    ] {
        // Under `nohup` the tests themselves, and all that they start, ignore it.
        if signal == "-HUP" && hang_ups_are_ignored() {
            continue;
        }
        let drawing = Drawing::start("", Stdio::piped());
        drawing.send(signal);
        drawing.check_end(code, line);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let drawing = Drawing::start("trap '' HUP;", Stdio::piped());
    drawing.send("-HUP");
    drawing.send("-TERM");
    drawing.check_end(143, "error: terminated\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_program_when_stderr_is_broken() {
    let full = fs_err::File::options().write(true).open("/dev/full").unwrap();
    let drawing = Drawing::start("", full.into_parts().0.into());
    drawing.send("-INT");
    drawing.check_end(130, "");
}
