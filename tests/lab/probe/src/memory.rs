//! Memory of the program's own, and none at all.

use std::ptr::NonNull;

use mlx5::hw::cmd::{CreateMkey, DestroyMkey};
use mlx5::hw::mkc::{AccessMode, Mkc};
use mlx5::{AccessFlags, Device, Mr, Pd, Qp, RecvWr, Remote, SendFlags, SendWr, Sge, WcStatus, WrOpcode, ibv};

use crate::accounts::locked_kib;
use crate::pair::{Pair, SIZE, Waiting, take};
use crate::target::Target;
use crate::{Result, say};

/// An I/O address that no port gives out so early: half of what an IOMMU of 39 bits can name.
const NOWHERE: u64 = 1 << 38;
/// Where in a page the program's memory begins; nothing asks for it to be aligned.
const ODD: usize = 1237;

/// Registers two buffers of the program's, lets the device write one to the other and read it back, and gives them
/// back.
pub fn registered(target: &Target, bytes: usize) -> Result<()> {
    let device = target.device()?;
    let mut pair = Pair::new(&device, [0, 0])?;
    let before = locked_kib()?;
    let sent: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(7) >> 3) as u8).collect();
    let mut from = vec![0u8; ODD + bytes];
    from[ODD..].copy_from_slice(&sent);
    let mut to = vec![0u8; ODD + bytes];
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let register = |memory: &mut Vec<u8>| {
        let start = NonNull::from(&mut memory[ODD]);
        // SAFETY: the vectors outlive the registrations, which are ended below or by dropping them, and are looked at
        // only before and after.
        unsafe { ibv::reg_mr(&pair.pd, start, bytes, access) }
    };
    let (source, sink) = (register(&mut from)?, register(&mut to)?);
    let during = locked_kib()?;
    let there = WrOpcode::RdmaWrite { remote: remote(&sink) };
    transfer(&device, &mut pair, &source, bytes, there)?;
    let back = WrOpcode::RdmaRead { remote: remote(&sink) };
    transfer(&device, &mut pair, &source, bytes, back)?;
    ibv::dereg_mr(source).map_err(|e| e.error)?;
    ibv::dereg_mr(sink).map_err(|e| e.error)?;
    let after = locked_kib()?;
    if to[ODD..] != sent || from[ODD..] != sent {
        return Err("what arrived is not what was sent".into());
    }
    pair.close()?;
    ibv::close_device(device).map_err(|e| e.error)?;
    let locked = format!("locked_before={before} locked={during} locked_after={after}");
    say("memory", &format!("device={} bytes={bytes} {locked}", target.name()));
    Ok(())
}

fn remote(mr: &Mr) -> Remote {
    Remote { addr: mr.addr().addr().get() as u64, rkey: mr.rkey() }
}

fn transfer(device: &Device, pair: &mut Pair, local: &Mr, bytes: usize, opcode: WrOpcode) -> Result<()> {
    let piece = [Sge { addr: local.addr().addr().get() as u64, length: bytes as u32, lkey: local.lkey() }];
    let send_flags = SendFlags::SIGNALED;
    ibv::post_send(&mut pair.qp[0], &[SendWr { sg_list: &piece, opcode, send_flags, ..SendWr::default() }])?;
    match take(device, &mut pair.cq[0], Waiting::Sleeping)?.status {
        WcStatus::SUCCESS => Ok(()),
        status => Err(format!("the transfer ended with {status}").into()),
    }
}

/// Where a key leads whose pages are mapped to nothing: what a driver does whose memory was unmapped too early.
struct Nowhere {
    index: u32,
}

impl Nowhere {
    /// Addresses from 0 on that lead to [`NOWHERE`].
    fn new(device: &Device, pd: &Pd) -> Result<Self, mlx5::Error> {
        let mkc = Mkc::new()
            .with_lr(true)
            .with_lw(true)
            .with_access_mode(AccessMode::MTT)
            .with_qpn(0xff_ffff)
            .with_pd(pd.pdn())
            .with_len(4096)
            .with_translations_octword_size(1)
            .with_log_page_size(12);
        // SAFETY: the device finds nothing where the key leads.
        let index = unsafe { device.general_cmd(&CreateMkey { mkc, translations: &[NOWHERE] }) }?;
        Ok(Self { index })
    }

    fn piece(&self) -> Sge {
        Sge { addr: 0, length: SIZE as u32, lkey: self.index << 8 }
    }

    fn destroy(self, device: &Device) -> Result<(), mlx5::Error> {
        // SAFETY: the key is nobody else's.
        unsafe { device.general_cmd(&DestroyMkey { mkey_index: self.index }) }
    }
}

/// A send from where nothing is mapped, and a receive to there; each on a pair of its own. Then messages that arrive.
pub fn unmapped(target: &Target) -> Result<()> {
    let device = target.device()?;
    for (name, sends) in [("gather", true), ("scatter", false)] {
        let mut pair = Pair::new(&device, [0, 0])?;
        let nowhere = Nowhere::new(&device, &pair.pd)?;
        let [a, b] = &pair.buf;
        let somewhere = [a, b].map(|buf| Sge { addr: buf.addr(), length: SIZE as u32, lkey: buf.lkey() });
        let (from, to) = if sends { (nowhere.piece(), somewhere[1]) } else { (somewhere[0], nowhere.piece()) };
        let [sender, receiver] = &mut pair.qp;
        post(sender, receiver, from, to)?;
        // The other end of a message that was never sent hears nothing.
        let ends = if sends { &[0][..] } else { &[1, 0] };
        for &end in ends {
            let wc = take(&device, &mut pair.cq[end], Waiting::Polling)?;
            let side = ["sender", "receiver"][end];
            let (status, vendor) = (wc.status, wc.vendor_err);
            say("unmapped", &format!("{name} side={side} status={status} vendor_err={vendor:#x}"));
        }
        while let Some(event) = device.try_get_async_event() {
            say("unmapped", &format!("{name} event={event}"));
        }
        nowhere.destroy(&device)?;
        pair.close()?;
    }
    let mut pair = Pair::new(&device, [0, 0])?;
    (0..20).try_for_each(|n| pair.exchange(&device, n, Waiting::Polling))?;
    say("unmapped", &format!("messages=20 failure={:?}", device.failure()));
    pair.close()?;
    Ok(ibv::close_device(device).map_err(|e| e.error)?)
}

fn post(sender: &mut Qp, receiver: &mut Qp, from: Sge, to: Sge) -> Result<()> {
    ibv::post_recv(receiver, &[RecvWr { wr_id: 0, sg_list: &[to] }])?;
    let send = SendWr { sg_list: &[from], send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    Ok(ibv::post_send(sender, &[send])?)
}
