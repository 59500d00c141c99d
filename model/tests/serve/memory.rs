//! Memory of a client: ranges side by side, rights, holes, ends, and what the device still owns.

use std::fs;
use std::os::unix::fs::FileExt;

use mlx5_model::{ViolationKind, serve::Report};

use crate::client::{Client, DEVICE_RESET};
use crate::driver::{BYTES, Driver, INPUT, IOVA, memory, without_pages};

/// CREATE_EQ with an input that is all zeros: longer than the entry, so its mailbox is read.
const LONG: usize = 0x118;

fn kinds(report: &Report) -> Vec<ViolationKind> {
    report.violations.iter().map(|violation| violation.kind).collect()
}

fn long_command(opcode: u16) -> Vec<u8> {
    let mut input = vec![0; LONG];
    input[..2].copy_from_slice(&opcode.to_be_bytes());
    input
}

/// Runs a command whose mailbox lies at `IOVA - 0x1000`, with that address mapped by `map`; its delivery status.
fn with_mailbox(map: impl FnOnce(&mut Driver, u64)) -> (u8, Report) {
    let mut d = Driver::new(without_pages());
    let at = IOVA - 0x1000;
    map(&mut d, at);
    d.command(0x104, &[0; 8], 16);
    // An opcode that needs INIT_HCA: refused with a status, once it has been delivered.
    d.post_at(&long_command(0x301), 16, at);
    let entry = d.wait();
    (entry[0x3f] >> 1, d.client.end().unwrap())
}

#[test]
fn an_access_runs_on_into_the_range_beside_it_wherever_that_lies_in_the_file() {
    let (delivery, report) = with_mailbox(|d, at| {
        let file = d.file.try_clone().unwrap();
        // The token is in the second range; it must be the entry's, 0.
        file.write_all_at(&[0x77; 0x400], 0x8_0000).unwrap();
        file.write_all_at(&[0; 0x400], 0x9_0000).unwrap();
        d.client.map((at, 0x101), 1, Some((&file, 0x9_0200))).unwrap();
        d.client.map((at + 0x101, 0xeff), 1, Some((&file, 0x9_0400))).unwrap();
    });
    assert_eq!((delivery, kinds(&report)), (0, vec![ViolationKind::CommandOrder]));
}

#[test]
fn an_access_into_a_hole_or_to_what_is_not_memory_is_refused() {
    let (delivery, report) = with_mailbox(|d, at| {
        let file = d.file.try_clone().unwrap();
        d.client.map((at, 0x100), 3, Some((&file, 0x9_0000))).unwrap();
    });
    assert_eq!(delivery, 5, "input pointer");
    assert_eq!(kinds(&report), [ViolationKind::DmaUnmapped]);
    let (delivery, report) = with_mailbox(|d, at| assert!(d.client.map((at, 0x1000), 1, None).is_some()));
    assert_eq!(delivery, 5);
    assert_eq!(kinds(&report), [ViolationKind::DmaUnmapped]);
    assert!(report.violations[0].detail.contains("not memory"), "{report}");
}

#[test]
fn what_is_read_only_is_read_and_not_written() {
    let mut d = Driver::new(without_pages());
    let file = d.file.try_clone().unwrap();
    d.client.unmap((IOVA, BYTES), 0).unwrap();
    d.client.map((IOVA, BYTES), 1, Some((&file, 0))).unwrap();
    d.post(&[[0x01, 0x04, 0, 0].as_slice(), &[0; 12]].concat(), 16);
    let report = d.client.end().unwrap();
    assert_eq!((report.commands, kinds(&report)), (1, vec![ViolationKind::DmaUnmapped]));
    assert!(report.violations[0].detail.contains("read only"), "{report}");
}

#[test]
fn memory_that_the_device_still_owns_may_not_be_unmapped() {
    let mut d = Driver::new(without_pages());
    d.bring_up();
    d.create_eq(0, 1 << 0xa);
    d.client.unmap((IOVA, BYTES), 0).unwrap();
    let report = d.client.end().unwrap();
    assert_eq!(kinds(&report), [ViolationKind::FreedWhileOwned]);
    for by_reset in [false, true] {
        let mut d = Driver::new(without_pages());
        if by_reset {
            d.bring_up();
            d.create_eq(0, 1 << 0xa);
            d.client.call(DEVICE_RESET, &[], &[]).unwrap();
        }
        d.client.unmap((IOVA, BYTES), 0).unwrap();
        assert_eq!(kinds(&d.client.end().unwrap()), []);
    }
}

#[test]
fn one_unmap_covers_many_ranges_or_none_and_may_end_at_the_last_address() {
    let mut client = Client::new(without_pages());
    let file = memory(0x10000);
    let maps = |client: &Client| client.model.dma_outstanding();
    for at in [0, 0x5000, 0xfef0_0000, u64::MAX - 0xfff] {
        client.map((at, 0x1000), 3, Some((&file, 0x1000))).unwrap();
    }
    // As an emulated IOMMU sweeps the addresses that it does not use.
    client.unmap((0xfef0_0000, 0xffff_ffff_0110_0000), 0).unwrap();
    assert_eq!(maps(&client), (2, 0x2000));
    client.unmap((1 << 46, 1 << 47), 0).unwrap();
    client.unmap((0x5000, 0), 0).unwrap();
    assert_eq!(maps(&client), (2, 0x2000));
    client.unmap((0, 0x4000), 0).unwrap();
    assert_eq!(maps(&client), (1, 0x1000));
    client.map((0x8000, 0x1000), 1, None).unwrap();
    client.unmap((0, 0), 2).unwrap();
    assert_eq!(maps(&client), (0, 0), "flag 2: all of them");
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn ranges_may_cover_every_address() {
    let mut client = Client::new(without_pages());
    for at in [0, 1 << 63] {
        client.map((at, 1 << 63), 3, None).unwrap();
    }
    assert_eq!(client.model.dma_outstanding().0, 2);
    client.unmap((0, 1 << 63), 0).unwrap();
    assert_eq!(client.model.dma_outstanding(), (1, 1 << 63));
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn a_range_that_cannot_be_is_refused_and_changes_nothing() {
    let mut client = Client::new(without_pages());
    let file = memory(0x4000);
    client.map((0x10000, 0x2000), 3, Some((&file, 0))).unwrap();
    for (iova, len, offset) in [
        (0x11000, 0x1000, 0),
        (0xf000, 0x1001, 0),
        (0x10000, 0x2000, 0),
        (0, 0x4001, 0),
        (0, 0x1000, 0x3001),
        (0, 0x1000, u64::MAX),
        (0, u64::MAX, 1),
        (u64::MAX, 2, 0),
        (0, 0, 0),
    ] {
        assert!(client.map((iova, len), 3, Some((&file, offset))).is_none(), "{len:#x} at {iova:#x} from {offset:#x}");
    }
    for range in [(0x10000, 0x1000), (0x11000, 0x1000), (0x10fff, u64::MAX), (0x10001, 0x4000)] {
        assert!(client.unmap(range, 0).is_none(), "{range:#x?}");
    }
    assert_eq!(client.model.dma_outstanding(), (1, 0x2000));
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn as_many_ranges_are_taken_as_the_protocol_says() {
    let mut client = Client::new(without_pages());
    for page in 0..65_535 {
        assert!(client.map((page << 12, 0x1000), 3, None).is_some(), "range {page}");
    }
    assert!(client.map((1 << 40, 0x1000), 3, None).is_none());
    client.unmap((0, 0x1000), 0).unwrap();
    assert!(client.map((1 << 40, 0x1000), 3, None).is_some());
    assert!(client.end().unwrap().violations.is_empty());
}

#[test]
fn a_file_is_mapped_once_for_thousands_of_ranges_and_again_when_it_has_grown() {
    let mut d = Driver::new(without_pages());
    let file = memory(0x10_0000);
    let inode = {
        use std::os::unix::fs::MetadataExt;
        file.metadata().unwrap().ino().to_string()
    };
    for page in 0..2500 {
        d.client.map((page << 13, 0x1000), 3, Some((&file, (page % 256) << 12))).unwrap();
    }
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(inode.as_str())).count()
    };
    assert_eq!(mapped(), 1);
    file.set_len(0x20_0000).unwrap();
    d.client.map((1 << 40, 0x1000), 3, Some((&file, 0x1f_f000))).unwrap();
    assert!(d.client.unmap((0, 0), 2).is_some());
    d.client.map((IOVA, BYTES), 3, Some((&d.file, 0))).unwrap();
    d.command(0x104, &[0; 8], 16);
    d.store(INPUT, &[0; 16]);
    assert!(d.client.end().unwrap().violations.is_empty());
    assert_eq!(mapped(), 0);
}
