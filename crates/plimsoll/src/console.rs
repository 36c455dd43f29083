//! What the program says: results on stdout, complaints on stderr.
//!
//! Nothing here panics, whatever the streams are. A reader that has closed its end has read enough; every other failure
//! of stdout is told, because somebody asked for what it should hold.

use std::io::{self, ErrorKind, Write};

use anyhow::anyhow;

use crate::failure::reason;

/// Writes `text` to stdout, through to its end.
///
/// # Errors
/// When stdout takes it not.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes());
    printed(written.and_then(|()| out.flush()))
}

/// What is to be told about an attempt to write to stdout.
pub(crate) fn printed(outcome: io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow!("stdout can't be written: {}; send it elsewhere", reason(&error)))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a line to stderr. If that fails there is nowhere left to say so.
pub(crate) fn complain(what: &str) {
    let _ = io::stderr().write_all(format!("error: {what}\n").as_bytes());
}

/// Writes a line to stderr about what costs nothing but should be known.
pub(crate) fn warn(what: &str) {
    let _ = io::stderr().write_all(format!("warning: {}\n", escaped(what)).as_bytes());
}

/// `text` with its control characters escaped, so that it can't steer a terminal or forge a line.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_the_readers_wish_and_a_full_disk_is_not() {
        assert!(printed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        let full = printed(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(full.to_string(), "stdout can't be written: no storage space; send it elsewhere");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\nb\u{1b}[31m \u{9b}ä"), r"a\nb\u{1b}[31m \u{9b}ä");
    }
}
