//! The initialization segment behind a BAR of plain memory, and health buffers of public reports.

use std::sync::Mutex;

use mlx5_hw::health::{HealthBuffer, HealthSyndrome, Severity};
use mlx5_hw::init_segment::{InitSegment, NicInterface};
use mlx5_hw::platform::Bar;
use mlx5_hw::prm::Layout;

use super::{case, unhex, words};

/// Memory in device order with a record of the writes. `moving` makes the timer's high half step after each read of the
/// low half.
struct Registers {
    bytes: Mutex<Vec<u8>>,
    writes: Mutex<Vec<(usize, [u8; 4])>>,
    moving: bool,
}

impl Registers {
    fn new() -> Self {
        Self { bytes: Mutex::new(vec![0; 0x3000]), writes: Mutex::new(Vec::new()), moving: false }
    }

    fn set(&self, at: usize, value: &[u8]) {
        self.bytes.lock().expect("not poisoned")[at..at + value.len()].copy_from_slice(value);
    }

    fn writes(&self) -> Vec<(usize, [u8; 4])> {
        self.writes.lock().expect("not poisoned").clone()
    }
}

// SAFETY: every method is one access to plain memory under a lock; accesses are checked.
unsafe impl Bar for Registers {
    fn size(&self) -> usize {
        0x3000
    }

    fn read32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4), "aligned");
        let mut bytes = self.bytes.lock().expect("not poisoned");
        let value = u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
        if self.moving && offset == 0x1004 {
            bytes[0x1003] += 1;
            bytes[0x1007] = bytes[0x1007].wrapping_add(0x11);
        }
        value
    }

    fn write32(&self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4), "aligned");
        self.set(offset, &value.to_le_bytes());
        self.writes.lock().expect("not poisoned").push((offset, value.to_le_bytes()));
    }

    fn write64(&self, offset: usize, _: u64) {
        panic!("no 64-bit write in the initialization segment: {offset:#x}");
    }
}

#[test]
fn versions_and_sizes_are_read_from_their_places() {
    let bar = Registers::new();
    bar.set(0, &[0x00, 0x20, 0x00, 0x10, 0x00, 0x05, 0x01, 0xec]); // minor, major; command interface, patch
    bar.set(0x14, &[0xff, 0xff, 0xf7, 0x56]);
    let segment = InitSegment::new(&bar);
    assert_eq!(segment.fw_rev(), (16, 32, 492));
    assert_eq!(segment.cmd_interface_rev(), 5);
    assert_eq!(segment.cmdq_sizes(), (5, 6));
    assert_eq!(segment.nic_interface(), NicInterface::SW_RESET, "three bits");
}

#[test]
fn flags_and_counters_are_read_from_their_places() {
    let bar = Registers::new();
    let segment = InitSegment::new(&bar);
    assert!(!segment.initializing());
    bar.set(0x1fc, &[0x80, 0, 0, 0]);
    assert!(segment.initializing());
    assert!(!segment.embedded_cpu());
    bar.set(0x1fc, &[0x00, 0x80, 0, 0]);
    assert!(!segment.initializing());
    assert!(segment.embedded_cpu());
    bar.set(0x1010, &[0x08, 0x12, 0x34, 0x56]);
    assert_eq!(segment.health_counter(), 0x12_3456, "the syndrome above it is not part of it");
    bar.set(0xff8, &[0, 0, 0xea, 0x60, 0, 0, 0x07, 0xd0]);
    assert_eq!(segment.timeouts(), (60_000, 2_000));
}

#[test]
fn the_command_queue_s_address_is_written_high_half_first_with_low_bits_clear() {
    let bar = Registers::new();
    let segment = InitSegment::new(&bar);
    segment.set_cmdq_address(0x1234_5678_9abc_dfff);
    segment.ring_command_doorbell(1 << 31 | 1);
    assert_eq!(
        bar.writes(),
        [(0x10, [0x12, 0x34, 0x56, 0x78]), (0x14, [0x9a, 0xbc, 0xd0, 0x00]), (0x18, [0x80, 0x00, 0x00, 0x01]),]
    );
}

#[test]
fn the_nic_interface_is_written_beside_the_address() {
    let bar = Registers::new();
    bar.set(0x14, &[0x9a, 0xbc, 0xd0, 0x56]);
    let segment = InitSegment::new(&bar);
    segment.set_nic_interface(NicInterface::DISABLED);
    segment.set_nic_interface(NicInterface::SW_RESET);
    assert_eq!(bar.writes(), [(0x14, [0x9a, 0xbc, 0xd1, 0x00]), (0x14, [0x9a, 0xbc, 0xd7, 0x00])]);
    assert_eq!(segment.nic_interface(), NicInterface::SW_RESET);
}

#[test]
fn the_timer_s_halves_fit_together() {
    let mut bar = Registers::new();
    bar.set(0x1000, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf0]);
    assert_eq!(InitSegment::new(&bar).internal_timer(), 0x1_ffff_fff0);
    bar.moving = true;
    // The low half wraps between the reads: 0x2_ffffff01 is right, 0x1_ffffff01 and 0x2_fffffff0 are torn.
    assert_eq!(InitSegment::new(&bar).internal_timer(), 0x2_ffff_ff01);
}

#[test]
fn health_buffers_of_reports_say_what_was_printed() {
    for id in ["B-024", "B-026"] {
        let case = case(id);
        let expected = &case["expected"];
        let number = |name: &str| expected[name].as_u64().expect("a number");
        let bar = Registers::new();
        bar.set(0x200, &unhex(&case["input"]["health_hex"]));
        let health = InitSegment::new(&bar).health_buffer();

        let asserts: Vec<_> = (0..6).map(|i| u64::from(health.assert_var(i))).collect();
        let printed: Vec<_> =
            expected["assert_var"].as_array().expect("a list").iter().filter_map(|v| v.as_u64()).collect();
        assert_eq!(asserts, printed, "{id}");
        assert_eq!(u64::from(health.assert_existptr()), number("assert_exit_ptr"), "{id}");
        assert_eq!(u64::from(health.assert_callra()), number("assert_callra"), "{id}");
        assert_eq!(u64::from(health.time()), number("time"), "{id}");
        let (major, minor, patch) = health.fw_version_parts();
        assert_eq!(Some(format!("{major}.{minor}.{patch}").as_str()), expected["fw_ver"].as_str(), "{id}");
        assert_eq!(u64::from(health.hw_id()), number("hw_id"), "{id}");
        assert_eq!(u64::from(health.rfr()), number("rfr"), "{id}");
        assert_eq!(u64::from(health.severity_or_default().0), number("severity"), "{id}");
        assert_eq!(Some(health.severity_or_default().name()), expected["severity_name"].as_str(), "{id}");
        assert_eq!(u64::from(health.irisc_index()), number("irisc_index"), "{id}");
        assert_eq!(u64::from(health.syndrome().0), number("synd"), "{id}");
        assert_eq!(Some(health.syndrome().meaning()), expected["synd_name"].as_str(), "{id}");
        assert_eq!(u64::from(health.ext_synd()), number("ext_synd"), "{id}");
        assert_eq!(Some(health.unhealthy()), expected["unhealthy"].as_bool(), "{id}");
        assert_eq!(InitSegment::new(&bar).health_syndrome(), (number("synd") as u8, false), "{id}");
    }
}

#[test]
fn severities_are_syslog_s() {
    let case = case("B-027");
    let severity = case["input"]["printed"]["severity"].as_u64().expect("a number") as u8;
    assert_eq!(Some(Severity(severity).name()), case["expected"]["severity_name"].as_str());
    let names: Vec<_> = (0..8).map(|s| Severity(s).name().to_lowercase()).collect();
    assert_eq!(names, ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"]);
}

#[test]
fn a_healthy_device_and_one_that_is_gone_are_told_apart() {
    let healthy = HealthBuffer::new();
    assert!(!healthy.unhealthy());
    assert_eq!(healthy.syndrome().meaning(), "no failure");
    let gone = HealthBuffer::from_words(&words(&[0xff; 64]));
    assert_eq!(gone.fw_version(), u32::MAX);
    assert_eq!(HealthSyndrome(0xff).meaning(), "unknown failure");
}
