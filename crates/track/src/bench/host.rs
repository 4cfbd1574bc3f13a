//! What the system says of the computer and of this process.

use track_profile::record::Machine;

use crate::system;

/// The computer.
pub(crate) fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let arch = std::env::consts::ARCH;
    Machine {
        system: format!("{} {arch}", std::env::consts::OS),
        processor: processor(&read("/proc/cpuinfo")).unwrap_or_else(|| arch.to_owned()),
        threads: system::threads(),
        memory_bytes: kib(&read("/proc/meminfo"), "MemTotal:"),
    }
}

/// Forgets the most that the process held so far, where the system allows it.
pub(super) fn reset_peak_memory() {
    // Where it does not, the peak of the whole process stands: larger, and so still an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Most memory that the process held at a time, in bytes.
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kib(&status, "VmHWM:")
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"))?;
    let name = line.trim_start().strip_prefix(':')?.trim();
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A line as `MemTotal:  123 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_system_are_read() {
        let cpu = "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\nflags\t\t: fpu\n";
        assert_eq!(processor(cpu).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(processor("flags: a"), None);
        assert_eq!(
            kib("VmPeak: 3 kB\nVmHWM:\t  12 kB\n", "VmHWM:"),
            Some(12 * 1024)
        );
        assert_eq!(kib("VmHWM: many\n", "VmHWM:"), None);
    }
}
