//! The health buffer in words.

use mlx5_hw::health::{HealthBuffer, HealthSyndrome, Severity};

use super::record::{layout, named, number};
use super::{Kind, Record};

/// Decodes the buffer at the head of `bytes`, and says how many bytes it takes; `None` if there are too few.
pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
    let bytes = bytes.get(..HealthBuffer::BYTES)?;
    let health: HealthBuffer = layout(bytes, 0);
    let gone = bytes.iter().all(|&b| b == 0xff);
    let syndrome = health.syndrome();
    let severity = health.severity_or_default();
    let headline = if gone {
        "All bits are one: nothing answered the read, the device has left the bus.".to_string()
    } else if health.unhealthy() {
        format!(
            "The device reports a failure: {} (syndrome {:#x}), severity {}.",
            syndrome.meaning(),
            syndrome.0,
            severity.name()
        )
    } else {
        "The device reports no failure (syndrome 0).".to_string()
    };
    let mut record = Record::new(Kind::Health, headline);
    objects(&mut record, &health, severity);
    rows(&mut record, &health, severity);
    if !gone && health.unhealthy() {
        causes(&mut record, &health, severity);
    }
    Some((record, HealthBuffer::BYTES))
}

fn version(health: &HealthBuffer) -> String {
    let (major, minor, patch) = health.fw_version_parts();
    format!("{major}.{minor}.{patch}")
}

fn objects(record: &mut Record, health: &HealthBuffer, severity: Severity) {
    record.put("assert_var", (0..6).map(|i| health.assert_var(i)).collect::<Vec<_>>());
    record.put("assert_exit_ptr", health.assert_existptr());
    record.put("assert_callra", health.assert_callra());
    record.put("time", health.time());
    record.put("fw_ver", version(health));
    record.put("hw_id", health.hw_id());
    record.put("rfr", u8::from(health.rfr()));
    record.put("severity", severity.0);
    record.put("severity_name", severity.name());
    record.put("severity_valid", health.valid());
    record.put("irisc_index", health.irisc_index());
    record.put("synd", health.synd());
    record.put("synd_name", health.syndrome().meaning());
    record.put("ext_synd", health.ext_synd());
    record.put("unhealthy", health.unhealthy());
}

fn rows(record: &mut Record, health: &HealthBuffer, severity: Severity) {
    let syndrome = health.syndrome();
    record.row_of::<HealthBuffer>(
        "synd",
        match syndrome.name() {
            Some(name) => format!("{} {}", named(syndrome.0.into(), Some(name)), syndrome.meaning()),
            None => format!("{} {}", number(syndrome.0.into()), syndrome.meaning()),
        },
    );
    record.row_of::<HealthBuffer>("ext_synd", number(health.ext_synd().into()));
    let assumed = if health.valid() { "" } else { " (assumed: the valid bit is not set)" };
    let scale = "Syslog order: 0 emergency to 7 debug, smaller is worse.";
    record.row("severity", format!("{} {}{assumed}", severity.0, severity.name()), scale);
    record.row_of::<HealthBuffer>("rfr", u8::from(health.rfr()).to_string());
    record.row_of::<HealthBuffer>("irisc_index", number(health.irisc_index().into()));
    record.row_of::<HealthBuffer>("fw_version", version(health));
    record.row_of::<HealthBuffer>("hw_id", number(health.hw_id().into()));
    record.row_of::<HealthBuffer>("time", number(health.time().into()));
    for (name, value) in [("assert_existptr", health.assert_existptr()), ("assert_callra", health.assert_callra())] {
        record.row_of::<HealthBuffer>(name, format!("{value:#x}"));
    }
    let asserts: Vec<String> = (0..6).map(|i| format!("{:#x}", health.assert_var(i))).collect();
    record.row_of::<HealthBuffer>("assert_var", asserts.join(" "));
}

fn causes(record: &mut Record, health: &HealthBuffer, severity: Severity) {
    let cause = match health.syndrome() {
        HealthSyndrome::FW_INTERNAL_ERR => {
            "A fault in the firmware: update it; report ext_synd and the assert words to the vendor."
        }
        HealthSyndrome::DEAD_IRISC => "A fault in the firmware or hardware: reset the device, update the firmware.",
        HealthSyndrome::HW_FATAL_ERR => {
            "Broken hardware, power or PCIe: a reset or power cycle; if it comes back, replace the card."
        }
        HealthSyndrome::FW_CRC_ERR => "The firmware image in flash is damaged: burn it again.",
        HealthSyndrome::ICM_FETCH_PCI_ERR | HealthSyndrome::ICM_PCI_POISONED_ERR => {
            "The device could not read the pages it was given: they were unmapped or freed too early, or an IOMMU or PCIe error."
        }
        HealthSyndrome::ICM_PAGE_ERR => "Pages given to the firmware were freed, given twice or used by the host.",
        HealthSyndrome::ASYNCHRONOUS_EQ_BUF_OVERRUN => {
            "Asynchronous events were not consumed: the event queue is not polled or its consumer index not written."
        }
        HealthSyndrome::EQ_IN_ERR | HealthSyndrome::EQ_INV => {
            "An event queue's memory is gone, or a CQ names one that does not exist."
        }
        HealthSyndrome::HIGH_TEMP_ERR => "Cooling: the device shuts itself down.",
        HealthSyndrome::TRUST_LOCKDOWN_ERR => "A security check failed: a power cycle, or the vendor's help.",
        _ => "No more is published about it: keep the whole buffer for the vendor's support.",
    };
    record.causes.push(cause.into());
    if severity <= Severity(2) {
        record.causes.push("At this severity the driver stops: no more commands, those pending fail.".into());
    }
    if health.rfr() {
        record.notes.push("The firmware asks for a reset (rfr): with it the device can recover.".into());
    }
}
