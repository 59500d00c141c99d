//! The rules of delivery: each breach has its delivery status, and nothing is executed.

use mlx5_model::{ModelConfig, ViolationKind};

use crate::driver::{Driver, put, sign};

/// What is spoiled in an entry and its mailboxes, and the delivery status that comes of it.
type Row = (&'static str, u8, fn(&Driver, &mut [u8; 64]));

const ROWS: &[Row] = &[
    ("type is not 7", 0x10, |_, e| e[0] = 6),
    ("reserved byte of the entry", 0x9, |_, e| e[2] = 1),
    ("reserved byte behind the signature", 0x9, |_, e| e[0x3e] = 1),
    ("delivery status not 0", 0x9, |_, e| e[0x3f] |= 0x10),
    ("input pointer unaligned", 0x5, |_, e| e[0xf] |= 8),
    ("output pointer unaligned", 0x4, |_, e| e[0x37] |= 8),
    ("input pointer into nowhere", 0x5, |_, e| put(e, 64, 64, 0x1000)),
    ("input longer than its mailboxes", 0x7, |_, e| put(e, 32, 32, 16 + 9 * 512 + 8)),
    ("input without mailboxes", 0x7, |_, e| put(e, 64, 64, 0)),
    ("input shorter than a header", 0x7, |_, e| put(e, 32, 32, 4)),
    ("input of 4 GiB", 0x7, |_, e| put(e, 32, 32, 0xffff_ffff)),
    ("output without mailboxes", 0x8, |_, e| put(e, 0x180, 64, 0)),
    ("output shorter than a status", 0x8, |_, e| put(e, 0x1c0, 32, 4)),
    ("token of the entry", 0x2, |_, e| e[0x3c] = 0x11),
    ("token of an input mailbox", 0x2, |d, _| d.spoil_block(0, 0, 3, 0x23d, &[1])),
    ("token of an output mailbox", 0x2, |d, _| d.spoil_block(0, 1, 0, 0x23d, &[1])),
    ("number of an input mailbox", 0x3, |d, _| d.spoil_block(0, 0, 2, 0x23b, &[7])),
    ("number of an output mailbox", 0x3, |d, _| d.spoil_block(0, 1, 0, 0x23b, &[7])),
    ("reserved bytes of a mailbox", 0x9, |d, _| d.spoil_block(0, 0, 0, 0x210, &[1])),
    ("next mailbox unaligned", 0x5, |d, _| {
        let next = d.block(0, 0, 1) + 512;
        d.spoil_block(0, 0, 0, 0x230, &next.to_be_bytes());
    }),
];

/// A command with several mailboxes each way: SET_HCA_CAP with too long an output.
fn long(d: &Driver) -> [u8; 64] {
    d.build(0, 0x109, 0, &[0; 8 + 4096], 1024)
}

#[test]
fn each_breach_of_delivery_has_its_status() {
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    for (name, status, spoil) in ROWS {
        let mut entry = long(&d);
        spoil(&d, &mut entry);
        d.post(0, &entry);
        assert_eq!(d.finish_slot(0), *status, "{name}");
        let broken = d.broken();
        // An access that leads nowhere is one breach, not two.
        let nowhere = name.ends_with("nowhere");
        let kind = if nowhere { ViolationKind::DmaUnmapped } else { ViolationKind::CommandDelivery };
        assert_eq!(broken.last(), Some(&kind), "{name}: {broken:?}");
        assert!(!nowhere || broken.len() == 1, "{name}: {broken:?}");
        let record = d.model.commands().pop().unwrap();
        assert_eq!((record.delivery, record.status), (*status, 0), "{name}");
    }
    d.post(0, &long(&d));
    assert_eq!(d.finish_slot(0), 0);
    assert_eq!(d.output(0, 16)[0], 0x51, "the same command delivered: bad output length");
}

#[test]
fn signatures_count_once_the_checksum_is_on() {
    let spoil: [fn(&Driver, &mut [u8; 64]); 3] = [
        |_, e| e[0x3d] ^= 0x40,
        |d, _| d.spoil_block(0, 0, 1, 0x23f, &[0x77]),
        |d, _| d.spoil_block(0, 1, 0, 0x23e, &[0x77]),
    ];
    for (on, wanted) in [(0, 0), (3, 1)] {
        let mut d = Driver::new(ModelConfig::default());
        d.boot();
        let mut page = d.caps(1);
        put(&mut page, 528, 2, on);
        d.set_caps(&page).unwrap();
        for spoil in spoil {
            let mut entry = long(&d);
            sign(&mut entry);
            spoil(&d, &mut entry);
            d.post(0, &entry);
            assert_eq!(d.finish_slot(0), wanted);
        }
    }
}

#[test]
fn what_the_device_writes_is_signed() {
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    let mut page = d.caps(1);
    put(&mut page, 528, 2, 3);
    d.set_caps(&page).unwrap();
    d.caps(1);
    let xor = |bytes: &[u8]| bytes.iter().fold(0, |x, b| x ^ b);
    assert_eq!(xor(&d.entry(0)), 0xff);
    for index in 0..8 {
        let block = d.load_block(0, 1, index);
        assert_eq!((xor(&block), xor(&block[0x200..0x23f])), (0xff, 0xff), "block {index}");
    }
    assert_eq!(d.broken(), []);
}

#[test]
fn a_token_of_zero_is_as_good_as_any() {
    let mut d = Driver::new(ModelConfig::default());
    d.token = 0;
    d.boot();
    assert_eq!(d.broken(), []);
}

#[test]
fn several_slots_are_taken_by_one_doorbell() {
    let mut d = Driver::new(ModelConfig { command_ns: 1000, ..ModelConfig::default() });
    d.boot();
    for slot in 0..3 {
        let entry = d.build(slot, 0x10a, 0, &[0; 8], 112);
        crate::driver::store(d.queue(), slot * 64, &entry);
    }
    d.write(0x18, 0b111);
    assert!(!(0..3).any(|slot| d.done(slot)), "they take their time");
    for slot in 0..3 {
        assert_eq!(d.finish_slot(slot), 0);
        assert_eq!(d.output(slot, 112)[0xb], 1, "issi 1 is in force");
    }
    assert_eq!(d.broken(), []);
}

#[test]
fn lengths_are_exact() {
    let mut d = Driver::new(ModelConfig::default());
    d.boot();
    for (opcode, op_mod, body, out_len, status) in [
        (0x107, 1, 16, 16, 0x50),
        (0x107, 1, 4, 16, 0x50),
        (0x107, 1, 8, 12, 0x51),
        (0x107, 1, 8, 24, 0x51),
        (0x100, 1, 8, 4096, 0x51),
        (0x108, 1, 24, 16, 0x50),
        (0x108, 2, 8, 24, 0x51),
    ] {
        let refused = d.run(opcode, op_mod, &vec![0; body], out_len).unwrap_err();
        assert_eq!(refused.0, status, "{opcode:#x} {body} {out_len}");
        assert_eq!(d.broken(), [ViolationKind::CommandLength]);
    }
}
