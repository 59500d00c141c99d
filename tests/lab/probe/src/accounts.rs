//! What Linux says of this process: processor time, context switches, locked memory.

use std::fs;

use crate::Result;

/// Processor time that this process has used so far, in ticks of 10 ms: in the program and in the kernel for it.
pub fn ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may have blanks. utime and stime are fields 14 and 15 (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at - 3).and_then(|text| text.parse::<u64>().ok());
    let (user, system) = ticks(14).zip(ticks(15)).ok_or("/proc/self/stat is short")?;
    Ok(user + system)
}

/// How often this thread went to sleep, or had to give way. Those of a thread that has ended are told nowhere.
pub fn switches() -> Result<u64> {
    let status = fs::read_to_string("/proc/thread-self/status")?;
    Ok(number(&status, "voluntary_ctxt_switches")? + number(&status, "nonvoluntary_ctxt_switches")?)
}

/// KiB that this process has locked.
pub fn locked_kib() -> Result<u64> {
    number(&fs::read_to_string("/proc/self/status")?, "VmLck")
}

/// The number behind `name:` in a file of lines.
fn number(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(word.ok_or_else(|| format!("no {name} in /proc/self"))?.parse()?)
}

/// What /proc/interrupts counts for each MSI-X vector that VFIO has of a function, by vector; all processors together.
pub fn interrupts(bdf: &str) -> Result<Vec<u64>> {
    Ok(counts(&fs::read_to_string("/proc/interrupts")?, bdf))
}

fn counts(text: &str, bdf: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let Some(name) = words.last().and_then(|word| word.strip_prefix("vfio-msix[")) else { continue };
        let Some((vector, function)) = name.split_once(']') else { continue };
        if let (true, Ok(vector)) = (function.trim_matches(['(', ')']) == bdf, vector.parse::<usize>()) {
            found.resize(found.len().max(vector + 1), 0);
            let all = words.iter().skip(1).map_while(|word| word.parse::<u64>().ok());
            found[vector] += all.sum::<u64>();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a guest with Linux 6.12 and two processors; the names are from drivers/vfio/pci/vfio_pci_intrs.c.
    #[test]
    fn interrupts_are_counted_by_vector_over_all_processors_and_only_the_functions_own() {
        let text = "            CPU0       CPU1       \n\
            \x20  4:         12          0  IR-IO-APIC    4-edge      ttyS0\n\
            \x2025:          3          4  IR-PCI-MSIX-0000:01:00.0    0-edge      vfio-msix[0](0000:01:00.0)\n\
            \x2026:          7          0  IR-PCI-MSIX-0000:01:00.0    2-edge      vfio-msix[2](0000:01:00.0)\n\
            \x2027:          9          0  IR-PCI-MSIX-0000:02:00.0    1-edge      vfio-msix[1](0000:02:00.0)\n";
        assert_eq!(counts(text, "0000:01:00.0"), [7, 0, 7]);
        assert_eq!(counts(text, "0000:03:00.0"), Vec::<u64>::new());
    }

    #[test]
    fn work_shows_as_processor_time_and_sleep_as_switches() {
        let before = (ticks().unwrap(), switches().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let mut sum = 0u64;
        while ticks().unwrap() < before.0 + 3 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(switches().unwrap() > before.1);
        assert!(locked_kib().is_ok());
    }
}
