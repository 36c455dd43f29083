//! What the system counts for this process. Only Linux tells without calls into C; elsewhere there is nothing to tell.

use plimsoll_device::ByteCount;

/// The most memory this process ever had resident.
pub(crate) fn peak_bytes() -> Option<ByteCount> {
    high_water_mark(&fs_err::read_to_string("/proc/self/status").ok()?)
}

/// Seconds that the threads that this process has now have run.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let threads = fs_err::read_dir("/proc/self/task").ok()?;
    let nanoseconds = threads.map(|thread| {
        let schedule = fs_err::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        schedule.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Some(nanoseconds.sum::<Option<u64>>()? as f64 / 1e9)
}

fn high_water_mark(status: &str) -> Option<ByteCount> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok().map(ByteCount::kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_high_water_mark() {
        assert_eq!(
            high_water_mark("VmPeak:\t 9000 kB\nVmHWM:\t  1234 kB\nVmRSS:\t 99 kB\n"),
            Some(ByteCount::kib(1234))
        );
        assert_eq!(high_water_mark("VmHWM:\t?\n"), None);
        assert_eq!(high_water_mark(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_run_and_holds_memory() {
        assert!(peak_bytes().unwrap() > ByteCount::mib(1));
        assert!(cpu_seconds().unwrap() > 0.0);
    }
}
