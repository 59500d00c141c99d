//! The processor makes the checks of keys that the device makes.
//!
//! A message of no bytes uses a receive up whatever its pieces are; then its entry is given data, so only the driver's
//! check stands between the data and the piece.

use std::ptr::NonNull;

use mlx5::{AccessFlags, Sge, WcStatus};
use mlx5_model::{Effect, Fault, Match};

use super::{Entries, FILL, allowing, assert_success, bytes, next, post_recv, send_bytes};
use crate::support::{BUF, Pair, REMOTE, SIZES};

/// The status of a receive into `list`, whose entry then holds 24 bytes.
fn status(p: &mut Pair, n: &mut u64, list: &[Sge]) -> WcStatus {
    let entries = Entries::of(&p.port, &p.cq[1]);
    post_recv(&mut p.qp[1], *n, list);
    send_bytes(p, *n, &[]);
    entries.put(*n, 1, &bytes(9, 24), 24);
    assert_success(&next(p, 0), *n);
    let wc = next(p, 1);
    assert_eq!(wc.wr_id, *n);
    *n += 1;
    wc.status
}

#[test]
fn a_piece_whose_key_does_not_allow_it_is_a_protection_error_and_nothing_is_written() {
    let mut p = allowing(64, SIZES);
    let local = AccessFlags::LOCAL_WRITE;
    let other_pd = p.dev.alloc_pd().unwrap();
    let elsewhere = other_pd.alloc_buf(4096, local).unwrap();
    let read_only = p.pd.alloc_buf(4096, AccessFlags::REMOTE_READ).unwrap();
    let gone = p.pd.alloc_buf(4096, local).unwrap();
    let small = p.pd.alloc_buf(33, local | REMOTE).unwrap();
    let of = |buf: &mlx5::DmaBuf, from: u64| Sge { addr: buf.addr().wrapping_add(from), length: 24, lkey: buf.lkey() };
    let dead = of(&gone, 0);
    gone.dereg().map_err(|e| e.error).unwrap();
    let mut n = 0;
    let good = of(&p.buf[1], 0);
    for (why, piece) in [
        ("another domain's key", of(&elsewhere, 0)),
        ("no local write access", of(&read_only, 0)),
        ("a key that is gone", dead),
        ("another key's low byte", Sge { lkey: good.lkey ^ 1, ..good }),
        ("a key that never was", Sge { lkey: 0xdead_be00, ..good }),
        ("the largest key", Sge { lkey: u32::MAX, ..good }),
        ("key 0", Sge { lkey: 0, ..good }),
        ("before the start", of(&p.buf[1], u64::MAX)),
        ("behind the end", of(&p.buf[1], BUF as u64 - 23)),
        ("at the end", of(&p.buf[1], BUF as u64)),
        ("in the last word, behind the end", of(&small, 10)),
        ("address 0", Sge { addr: 0, ..good }),
        ("the end of the address space", Sge { addr: u64::MAX, ..good }),
        ("another buffer's address", Sge { addr: elsewhere.addr(), ..good }),
    ] {
        assert_eq!(status(&mut p, &mut n, &[piece]), WcStatus::LOC_PROT_ERR, "{why}");
    }
    assert_eq!(status(&mut p, &mut n, &[Sge { length: 23, ..good }]), WcStatus::LOC_LEN_ERR);
    assert!(super::untouched(&p, 1, &[]));
    for buf in [&elsewhere, &read_only, &small] {
        assert!(buf.words().iter().all(|w| w.load(std::sync::atomic::Ordering::Relaxed) == 0));
    }
    // What just fits.
    let last = of(&p.buf[1], BUF as u64 - 24);
    assert_eq!(status(&mut p, &mut n, &[last]), WcStatus::SUCCESS);
    assert_eq!(p.bytes(1, BUF - 24, 24), bytes(9, 24));
    assert_eq!(status(&mut p, &mut n, &[of(&small, 9)]), WcStatus::SUCCESS);
    let mut got = [0; 33];
    small.read(0, &mut got).unwrap();
    assert_eq!((&got[..9], &got[9..]), (&[0; 9][..], &bytes(9, 24)[..]));
    for buf in [elsewhere, read_only, small] {
        buf.dereg().map_err(|e| e.error).unwrap();
    }
    other_pd.dealloc().map_err(|e| e.error).unwrap();
    p.end();
}

/// Pieces before the bad one are written, as a device does; the ones behind it are not.
#[test]
fn a_bad_piece_ends_the_copy() {
    let mut p = allowing(64, SIZES);
    let bad = Sge { lkey: 0xdead_be00, ..p.sge(1, 20, 10) };
    let list = [p.sge(1, 0, 10), bad, p.sge(1, 40, 10)];
    assert_eq!(status(&mut p, &mut 0, &list), WcStatus::LOC_PROT_ERR);
    assert_eq!(p.bytes(1, 0, 10), bytes(9, 24)[..10]);
    assert!(super::untouched(&p, 1, &[(0, 10)]));
    // A bad piece that no data reaches is never looked at.
    let list = [p.sge(1, 0, 24), bad];
    assert_eq!(status(&mut p, &mut 1, &list), WcStatus::SUCCESS);
    p.end();
}

/// The buffer goes between the message's arrival and its polling.
#[test]
fn memory_deregistered_before_polling_is_not_written() {
    let mut p = allowing(64, SIZES);
    let mut memory = vec![FILL; 4096].into_boxed_slice();
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    // SAFETY: no reference to the memory is made until it is deregistered, and it lives longer.
    let mr = unsafe { p.pd.reg_mr(start, 4096, AccessFlags::LOCAL_WRITE) }.unwrap();
    let buf = p.pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let addr = start.as_ptr() as u64;
    let pieces = [
        Sge { addr, length: 32, lkey: mr.lkey() },
        Sge { addr: buf.addr(), length: 32, lkey: buf.lkey() },
        Sge { addr: buf.addr(), length: 32, lkey: buf.lkey() },
    ];
    for (n, piece) in pieces.into_iter().enumerate() {
        post_recv(&mut p.qp[1], n as u64, &[piece]);
        send_bytes(&mut p, n as u64, &bytes(n, 32));
        assert_success(&next(&mut p, 0), n as u64);
    }
    mr.dereg().map_err(|e| e.error).unwrap();
    // Dropping is deregistering.
    drop(buf);
    for n in 0..3 {
        let wc = next(&mut p, 1);
        assert_eq!((wc.wr_id, wc.status), (n, WcStatus::LOC_PROT_ERR));
    }
    assert!(memory.iter().all(|byte| *byte == FILL));
    p.end();
}

/// A deregistration that the device refuses leaves the buffer as it was.
#[test]
fn a_buffer_that_could_not_be_deregistered_goes_on_being_written() {
    let mut p = allowing(64, SIZES);
    let buf = p.pd.alloc_buf(64, AccessFlags::LOCAL_WRITE).unwrap();
    // DESTROY_MKEY.
    let (at, effect) = (Match::Opcode(0x202), Effect::Status { status: 0x5, syndrome: 1 });
    p.port.model.inject(Fault::Command { at, effect });
    let buf = buf.dereg().unwrap_err().object;
    let piece = Sge { addr: buf.addr(), length: 32, lkey: buf.lkey() };
    assert_eq!(status(&mut p, &mut 0, &[piece]), WcStatus::SUCCESS);
    let mut got = [0; 24];
    buf.read(0, &mut got).unwrap();
    assert_eq!(got[..], bytes(9, 24)[..]);
    buf.dereg().map_err(|e| e.error).unwrap();
    assert_eq!(status(&mut p, &mut 1, &[piece]), WcStatus::LOC_PROT_ERR);
    p.end();
}

/// Memory that the device keeps because its key could not be destroyed is nobody's any more, until a reset frees it.
#[test]
fn memory_that_the_device_keeps_is_not_written() {
    let mut p = allowing(64, SIZES);
    let mut memory = vec![FILL; 4096].into_boxed_slice();
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    // SAFETY: no reference to the memory is made until the device was reset, and it lives longer.
    let mr = unsafe { p.pd.reg_mr(start, 4096, AccessFlags::LOCAL_WRITE) }.unwrap();
    let buf = p.pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let books = p.port.clone();
    let kept = books.words(books.iova(buf.addr()), 6);
    let pieces = [
        Sge { addr: buf.addr(), length: 32, lkey: buf.lkey() },
        Sge { addr: start.as_ptr() as u64, length: 32, lkey: mr.lkey() },
    ];
    // DESTROY_MKEY.
    let (at, effect) = (Match::Every(0x202), Effect::Status { status: 0x5, syndrome: 1 });
    p.port.model.inject(Fault::Command { at, effect });
    drop((buf, mr));
    p.port.model.clear_faults();
    assert_eq!(p.dev.leaked().len(), 2);
    for (n, piece) in pieces.into_iter().enumerate() {
        assert_eq!(status(&mut p, &mut (n as u64), &[piece]), WcStatus::LOC_PROT_ERR);
    }
    assert!(kept.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
    let Pair { port, dev, pd, cq, qp, buf } = p;
    drop((pd, cq, qp, buf));
    // The domain still has keys, so the device does not let go of it; closing resets it.
    let _ = dev.close();
    port.model.take_violations();
    assert!(memory.iter().all(|byte| *byte == FILL));
}

/// A device that gives an index out twice: the second buffer stays with the device, the first one's key goes on meaning it.
#[test]
fn a_key_index_that_the_device_gives_out_twice_is_refused() {
    let mut p = allowing(64, SIZES);
    let dword = p.buf[1].lkey() >> 8;
    // CREATE_MKEY answers with the index in its third dword.
    let (at, effect) = (Match::Opcode(0x200), Effect::Output { at: 8, dword });
    p.port.model.inject(Fault::Command { at, effect });
    let twice = p.pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE);
    assert!(matches!(twice.err(), Some(mlx5::Error::Protocol { .. })));
    assert_eq!(p.dev.leaked().len(), 1);
    let to = p.sge(1, 8, 24);
    assert_eq!(status(&mut p, &mut 0, &[to]), WcStatus::SUCCESS);
    assert_eq!(p.bytes(1, 8, 24), bytes(9, 24));
    assert!(super::untouched(&p, 1, &[(8, 24)]));
    let Pair { port, dev, pd, cq, qp, buf } = p;
    drop((pd, cq, qp, buf));
    // The domain still has a key, so the device does not let go of it; closing resets it.
    let _ = dev.close();
    port.model.take_violations();
}
