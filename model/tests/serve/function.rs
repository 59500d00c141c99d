//! The function as a PCI device: regions, registers, commands, interrupts, resets.

use mlx5_model::{Effect, Fault, Match, ModelConfig, ViolationKind};

use crate::client::{BAR0, CONFIG, Client, DEVICE_RESET, IRQ_INFO, REGION_INFO};
use crate::driver::{Driver, IOVA, event, fires, without_pages};

/// MSI-X among a device's kinds of interrupts.
const MSIX: u32 = 2;
/// Flags of SET_IRQS: eventfds, or none, that trigger.
const EVENTFDS: u32 = 0x24;
const NOTHING: u32 = 0x21;

#[test]
fn a_client_finds_regions_interrupts_and_configuration_space() {
    let mut client = Client::new(ModelConfig { bar_size: 32 << 20, vectors: 8, ..ModelConfig::core() });
    for (index, size) in [(BAR0, 32 << 20), (1, 0), (CONFIG, 4096)] {
        let body = [32, 0, index, 0, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
        let reply = client.call(REGION_INFO, &body, &[]).unwrap();
        let flags = u32::from_le_bytes(reply[4..8].try_into().unwrap());
        assert_eq!(u64::from_le_bytes(reply[16..24].try_into().unwrap()), size, "region {index}");
        assert_eq!(flags, if size > 0 { 3 } else { 0 }, "read and write, no mmap");
    }
    let reply = client.call(IRQ_INFO, &[16, 0, MSIX, 0].map(u32::to_le_bytes).concat(), &[]).unwrap();
    assert_eq!(reply[12..16], 8_u32.to_le_bytes());
    assert_eq!(client.read(CONFIG, 0, 4).unwrap(), [0xb3, 0x15, 0x18, 0x10]);
    assert_eq!(client.read(CONFIG, 4, 2).unwrap(), [0, 0], "memory space and bus mastering are off");
    // The link: 16 lanes at 8 GT/s, now and at most. Linux believes that speed only of a function that lists its speeds.
    assert_eq!(client.read(CONFIG, 0x60 + 0x0c, 2).unwrap(), [0x03, 0x0d]);
    assert_eq!(client.read(CONFIG, 0x60 + 0x12, 2).unwrap(), [0x03, 0x01]);
    assert_eq!(client.read(CONFIG, 0x60 + 0x2c, 4).unwrap(), [0b1110, 0, 0, 0]);
    client.write(CONFIG, 0x10, &[0xff; 4]);
    client.write(CONFIG, 0x14, &[0xff; 4]);
    assert_eq!(client.read(CONFIG, 0x10, 8).unwrap(), [0x0c, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(client.read(CONFIG, 0, 4096).unwrap()[0x100..], [0; 0xf00], "no extended capabilities");
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn registers_are_read_in_every_width_and_only_while_memory_space_is_on() {
    let mut client = Client::new(ModelConfig::default());
    assert_eq!(client.register(0x4), u32::MAX);
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.register(0x4) >> 16, 5, "cmdif_rev");
    let all = client.read(BAR0, 0, 8).unwrap();
    assert_eq!([client.read(BAR0, 0, 4).unwrap(), client.read(BAR0, 4, 4).unwrap()].concat(), all);
    for at in 0..8 {
        assert_eq!(client.read(BAR0, at, 1).unwrap(), all[at as usize..][..1]);
    }
    assert_eq!(client.read(BAR0, 6, 2).unwrap(), all[6..8]);
    // What Linux reads of the health buffer in single bytes: synd and rfr_severity.
    assert_eq!((client.read(BAR0, 0x23d, 1).unwrap(), client.read(BAR0, 0x238, 1).unwrap()), (vec![0], vec![0]));
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn a_command_runs_in_the_memory_of_the_client() {
    let mut d = Driver::new(without_pages());
    let output = d.command(0x104, &[0; 8], 16);
    assert_eq!(output, [0; 16]);
    let report = d.client.end().unwrap();
    assert_eq!((report.commands, report.violations), (1, vec![]));
}

#[test]
fn a_late_completion_raises_its_interrupt_while_the_client_is_silent() {
    let mut d = Driver::new(without_pages());
    let irq = event();
    assert!(d.client.set_irqs(MSIX, EVENTFDS, (3, 1), &[&irq]).is_some());
    d.bring_up();
    d.create_eq(3, 1 << 0xa);
    let late = Effect::Late(30_000_000);
    d.client.model.inject(Fault::Command { at: Match::Opcode(0x10a), effect: late });
    d.post(&[[0x01, 0x0a, 0, 0].as_slice(), &[0; 12]].concat(), 112);
    assert!(fires(&irq, 60), "no interrupt");
    assert_eq!(d.wait()[0x3f], 0);
    assert!(d.client.end().unwrap().violations.is_empty());
}

#[test]
fn a_vector_without_an_eventfd_keeps_its_interrupt_until_one_comes() {
    let mut d = Driver::new(without_pages());
    d.bring_up();
    d.create_eq(1, 1 << 0xa);
    d.post(&[[0x01, 0x0a, 0, 0].as_slice(), &[0; 12]].concat(), 112);
    d.wait();
    // The pending bits lie at 0x7000 of BAR 0, as the capability says.
    assert_eq!(d.client.read(CONFIG, 0x9c + 8, 4).unwrap(), [0x00, 0x70, 0, 0]);
    assert_eq!(d.client.read(BAR0, 0x7000, 8).unwrap(), 2_u64.to_le_bytes());
    let irq = event();
    d.client.set_irqs(MSIX, EVENTFDS, (1, 1), &[&irq]).unwrap();
    assert!(fires(&irq, 0));
    assert_eq!(d.client.read(BAR0, 0x7000, 8).unwrap(), [0; 8]);
    assert!(d.client.end().unwrap().violations.is_empty());
}

#[test]
fn vectors_are_let_go_one_by_one_and_all_at_once() {
    let mut client = Client::new(ModelConfig { vectors: 4, ..ModelConfig::default() });
    client.write(CONFIG, 4, &[6, 0]);
    let irqs = [event(), event(), event()];
    client.set_irqs(MSIX, EVENTFDS, (0, 3), &[&irqs[0], &irqs[1], &irqs[2]]).unwrap();
    // One descriptor fewer than vectors, and none at all.
    client.set_irqs(MSIX, EVENTFDS, (1, 1), &[]).unwrap();
    client.set_irqs(MSIX, NOTHING, (0, 3), &[]).unwrap();
    assert_eq!([0, 1, 2].map(|i: usize| fires(&irqs[i], 0)), [true, false, true]);
    let fresh = event();
    client.set_irqs(MSIX, EVENTFDS, (0, 1), &[&fresh]).unwrap();
    client.set_irqs(MSIX, NOTHING, (0, 0), &[]).unwrap();
    client.set_irqs(MSIX, NOTHING, (0, 1), &[]).unwrap();
    assert!(!fires(&fresh, 0), "MSI-X is off");
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn a_reset_by_either_way_drops_everything_and_turns_the_bus_off() {
    for by_config in [false, true] {
        let mut d = Driver::new(without_pages());
        d.bring_up();
        d.create_eq(0, 1 << 0xa);
        if by_config {
            d.client.write(CONFIG, 0x68, &[0, 0x80]);
        } else {
            d.client.call(DEVICE_RESET, &[], &[]).unwrap();
        }
        assert_eq!(d.client.read(CONFIG, 4, 2).unwrap(), [0, 0]);
        assert_eq!(d.client.register(0x0), u32::MAX);
        d.start();
        d.bring_up();
        let report = d.client.end().unwrap();
        assert_eq!((report.objects, report.violations), (None, vec![]), "by config write: {by_config}");
    }
}

#[test]
fn without_bus_mastering_no_command_is_fetched() {
    let mut d = Driver::new(without_pages());
    d.client.write(CONFIG, 4, &[2, 0]);
    d.post(&[[0x01, 0x04, 0, 0].as_slice(), &[0; 12]].concat(), 16);
    d.client.register(0);
    assert_eq!(d.load(0, 64)[0x3f], 1, "still the device's");
    let report = d.client.end().unwrap();
    assert_eq!((report.commands, report.violations), (0, vec![]));
}

#[test]
fn a_doorbell_of_eight_bytes_is_one_doorbell() {
    let mut d = Driver::new(without_pages());
    d.bring_up();
    let (uar, _) = d.create_eq(0, 1 << 0xa);
    // A send doorbell for queue 0x123456, which does not exist: what the violation names shows what arrived.
    d.client.write(BAR0, u64::from(uar) * 4096 + 0x800, &[0, 0, 1, 0, 0x12, 0x34, 0x56, 0]);
    let report = d.client.end().unwrap();
    let [violation] = report.violations.as_slice() else { panic!("{report}") };
    assert_eq!(violation.kind, ViolationKind::DoorbellUnknownObject);
    assert!(violation.detail.contains("0x123456"), "{violation}");
}

#[test]
fn what_is_left_at_the_end_is_reported_and_the_memory_is_let_go() {
    let mut d = Driver::new(without_pages());
    d.bring_up();
    d.create_eq(0, 1 << 0xa);
    let model = d.client.model.clone();
    let report = d.client.end().unwrap();
    assert_eq!(report.objects.as_deref(), Some("1 UAR, 1 EQ"));
    assert_eq!((report.violations, model.dma_outstanding()), (vec![], (0, 0)), "at {IOVA:#x}");
}
