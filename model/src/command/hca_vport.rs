//! The port as InfiniBand has it: its HCA vport context, GIDs and partition keys.
//!
//! These commands exist on an InfiniBand port with `ib_virt`; Linux's driver sends management packets instead where that is
//! missing.

use super::Reject;
use crate::bytes::{be16, put_bits, put64, u8_at};
use crate::device::Device;

type Done = Result<(), Reject>;

/// Bytes of a query's answer before the context or the list.
const HEADER: usize = 0x10;
/// The index that asks for the whole table.
const WHOLE: u16 = 0xffff;
/// States of a port and of its physical layer (PortInfo of the InfiniBand specification).
const PORT_DOWN: u64 = 1;
const PORT_ACTIVE: u64 = 4;
const POLLING: u64 = 2;
const LINK_UP: u64 = 5;
/// The partition key of every port: full member of the default partition.
const DEFAULT_PKEY: u64 = 0xffff;
/// Partition keys when `pkey_table_size` is 0, GIDs when `gid_table_size` is; twice as many with each step.
pub(super) const PKEYS: usize = 128;
const GIDS: usize = 8;

fn own_port(dev: &Device, input: &[u8]) -> Done {
    if !dev.hca.is_infiniband() || dev.hca.caps.current("ib_virt") == 0 {
        return Err(Reject::HcaVportOff);
    }
    let (other, port, vport) = (u8_at(input, 0x8), u8_at(input, 0x9) & 0xf, be16(input, 0xa));
    if other != 0 || vport != 0 {
        return Err(Reject::Vport);
    }
    if u64::from(port) > dev.hca.caps.current("num_ports") { Err(Reject::HcaVportPort) } else { Ok(()) }
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_port(dev, input)?;
    let up = dev.link_up;
    let [system, port, node] = dev.hca.vport.guids();
    let context = &mut output[HEADER..];
    put_bits(context, 0x20 * 8 + 1, 1, 1); // has_smi
    put_bits(context, 0x22 * 8, 4, if up { LINK_UP } else { POLLING }); // port_physical_state
    put_bits(context, 0x23 * 8, 4, if up { PORT_ACTIVE } else { PORT_DOWN }); // port_state
    put_bits(context, 0x23 * 8 + 4, 4, if up { PORT_ACTIVE } else { PORT_DOWN }); // vport_state
    put64(context, 0x28, system);
    put64(context, 0x30, port);
    put64(context, 0x38, node);
    put_bits(context, 0x60 * 8, 16, dev.lid().into());
    put_bits(context, 0x63 * 8, 3, dev.config.lmc.into());
    put_bits(context, 0x63 * 8 + 3, 5, 18); // subnet_timeout: 4.096 us * 2^18
    put_bits(context, 0x64 * 8, 16, u64::from(up)); // sm_lid
    Ok(())
}

/// Entries of a table of `len` that an index asks for, of `size` bytes each. The answer must have room for just them.
fn asked(index: u16, len: usize, (room, size): (usize, usize)) -> Result<core::ops::Range<usize>, Reject> {
    let range = match usize::from(index) {
        _ if index == WHOLE => 0..len,
        index if index < len => index..index + 1,
        _ => return Err(Reject::HcaVportIndex),
    };
    if range.len() * size == room { Ok(range) } else { Err(Reject::OutputLength) }
}

pub(super) fn gids(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_port(dev, input)?;
    let len = GIDS << dev.hca.caps.current("gid_table_size");
    let (answer, list) = output.split_at_mut(HEADER);
    let wanted = asked(be16(input, 0xe), len, (list.len(), 16))?;
    put_bits(answer, 0xc * 8, 16, wanted.len() as u64); // gids_num
    if let Some(first) = list.chunks_exact_mut(16).next().filter(|_| wanted.start == 0) {
        first.copy_from_slice(&dev.hca.vport.gid());
    }
    Ok(())
}

pub(super) fn pkeys(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_port(dev, input)?;
    let len = PKEYS << dev.hca.caps.current("pkey_table_size");
    let list = &mut output[HEADER..];
    let wanted = asked(be16(input, 0xe), len, (list.len(), 4))?;
    if wanted.start == 0 {
        put_bits(list, 16, 16, DEFAULT_PKEY);
    }
    Ok(())
}
