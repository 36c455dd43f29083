//! Ends the program at a signal, with nothing unfinished left behind and the exit code that shells count: 128 and the
//! signal's number.
//!
//! A signal that is ignored when the program starts (`nohup`, a shell's background job) stays ignored.

/// From now on, an interrupt removes what is unfinished before it ends the program.
pub(crate) fn watch() {
    // Without a watcher the program still ends at a signal; only something unfinished might stay.
    let _ = platform::watch();
}

#[cfg(unix)]
mod platform {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use crate::unfinished;

    const ENDING: [(i32, &str); 3] = [(SIGINT, "interrupted"), (SIGTERM, "terminated"), (SIGHUP, "hung up")];

    pub(super) fn watch() -> io::Result<()> {
        // With a handler, a file that grows beyond the limit on its size is an error like others; without, a death.
        signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        let ignored = ignored_signals();
        let watched = ENDING.map(|(signal, _)| signal).into_iter().filter(move |signal| !ignored(*signal));
        let watched: Vec<i32> = watched.collect();
        // Registered by the thread that will act on them: if there is no thread, signals do what they always do.
        let (began, has_begun) = mpsc::channel();
        thread::Builder::new().name("plimsoll-signals".to_owned()).spawn(move || {
            let signals = Signals::new(watched);
            let _ = began.send(());
            if let Some(signal) = signals.ok().and_then(|mut signals| signals.forever().next()) {
                let what = ENDING.iter().find(|(ending, _)| *ending == signal).map_or("ended", |(_, what)| what);
                unfinished::end_program(what, 128 + signal);
            }
        })?;
        // An error means that the thread is gone already.
        let _ = has_begun.recv();
        Ok(())
    }

    /// Which signals this program was started to ignore. Only Linux tells it without calls into C.
    fn ignored_signals() -> impl Fn(i32) -> bool {
        let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = ignored_mask(&status);
        move |signal| mask >> (signal - 1) & 1 == 1
    }

    fn ignored_mask(status: &str) -> u64 {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn reads_the_mask_of_ignored_signals() {
            assert_eq!(ignored_mask("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n"), 0x1001);
            assert_eq!(ignored_mask(""), 0);
        }
    }
}

#[cfg(not(unix))]
mod platform {
    use crate::unfinished;

    /// 128 and the number of SIGINT.
    const INTERRUPTED: i32 = 130;

    pub(super) fn watch() -> Result<(), ctrlc::Error> {
        ctrlc::set_handler(|| unfinished::end_program("interrupted", INTERRUPTED))
    }
}
