//! How much memory the process may lock, and why the kernel refused some.

use std::fs;

use mlx5_hw::platform::PlatformError;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::host::Host;

/// Bit of CAP_IPC_LOCK in a set of capabilities.
const IPC_LOCK: u32 = 14;

/// Why the kernel refused to map `len` bytes more. It counts them against the limit of locked memory, and answers ENOMEM beyond.
pub(super) fn refusal(host: &Host, errno: Errno, len: usize) -> PlatformError {
    match errno {
        Errno::NOMEM => {}
        // No I/O addresses, or none of the kernel's entries for them.
        Errno::NOSPC => return PlatformError::NoMemory,
        _ => return PlatformError::Os(errno.raw_os_error()),
    }
    let status = fs::read_to_string(host.path("proc/self/status")).unwrap_or_default();
    let users = fs::read_to_string(host.path("proc/self/uid_map")).unwrap_or_default();
    over_limit(&status, &users, getrlimit(Resource::Memlock).current, len).unwrap_or(PlatformError::NoMemory)
}

/// The error if the limit is what stands in the way of `len` bytes more, by the process's `status` and `uid_map`.
fn over_limit(status: &str, users: &str, limit: Option<u64>, len: usize) -> Option<PlatformError> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let locked: u64 = field("VmLck").and_then(|kib| kib.strip_suffix(" kB")?.parse().ok()).unwrap_or(0);
    let caps = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    // The capability counts only where it is the system's own, not a container's.
    let of_the_system = users.split_whitespace().eq(["0", "0", "4294967295"]);
    let (limit, wanted) = (limit?, (locked * 1024).saturating_add(len as u64));
    let exempt = caps >> IPC_LOCK & 1 == 1 && of_the_system;
    (wanted > limit && !exempt).then_some(PlatformError::LockedMemory { limit, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "Name:\tmlx5\nVmLck:\t    2048 kB\nVmPin:\t       0 kB\nCapEff:\t0000000000000000\n";
    const ROOT: &str = "VmLck:\t    2048 kB\nCapEff:\t000001ffffffffff\n";
    const SYSTEM: &str = "         0          0 4294967295\n";
    const CONTAINER: &str = "         0     100000      65536\n";
    const MIB: usize = 1 << 20;

    /// C-086: ENOMEM is told with the limit. What it counts is memory only: BARs are not mapped for the device.
    #[test]
    fn the_limit_is_named_with_what_is_locked_and_wanted_together() {
        let error = Some(PlatformError::LockedMemory { limit: 3 << 20, wanted: 4 << 20 });
        assert_eq!(over_limit(USER, SYSTEM, Some(3 << 20), 2 * MIB), error);
        assert_eq!(over_limit(USER, SYSTEM, Some(4 << 20), 2 * MIB), None, "there is room");
        assert_eq!(over_limit(USER, SYSTEM, None, 2 * MIB), None, "there is no limit");
    }

    #[test]
    fn who_may_lock_as_much_as_they_like_is_told_of_no_limit_but_in_a_container_it_holds() {
        assert_eq!(over_limit(ROOT, SYSTEM, Some(1 << 20), 2 * MIB), None);
        assert!(over_limit(ROOT, CONTAINER, Some(1 << 20), 2 * MIB).is_some());
    }

    #[test]
    fn other_errors_are_the_systems_own() {
        assert_eq!(refusal(&Host::default(), Errno::FAULT, MIB), PlatformError::Os(14));
    }
}
