//! Objects that are a number and nothing else: UARs, protection domains, transport domains.

use super::Reject;
use crate::bar::UAR_BYTES;
use crate::bytes::{be24, put_bits};
use crate::device::Device;

type Done = Result<(), Reject>;

fn number(output: &mut [u8], value: u32) -> Done {
    put_bits(output, 0x9 * 8, 24, value.into());
    Ok(())
}

pub(super) fn alloc_uar(dev: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    let pages = (dev.config.bar_size / UAR_BYTES) as u32;
    let uar = dev.objects.free_uar(pages).ok_or(Reject::NoUar)?;
    dev.objects.uars.insert(uar);
    number(output, uar)
}

pub(super) fn dealloc_uar(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let uar = be24(input, 0x9);
    let objects = &mut dev.objects;
    if !objects.uars.contains(&uar) {
        return Err(Reject::UarUnknown);
    }
    let used = objects.eqs.values().any(|eq| eq.uar == uar)
        || objects.cqs.values().any(|cq| cq.uar == uar)
        || objects.qps.values().any(|qp| qp.uar == uar);
    if used {
        return Err(Reject::UarBusy);
    }
    objects.uars.remove(&uar);
    dev.flames.forget(uar);
    Ok(())
}

pub(super) fn alloc_pd(dev: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    let pd = dev.objects.free_pd(1 << dev.hca.caps.current("log_max_pd")).ok_or(Reject::NoPd)?;
    dev.objects.pds.insert(pd);
    number(output, pd)
}

pub(super) fn dealloc_pd(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let pd = be24(input, 0x9);
    let objects = &mut dev.objects;
    if !objects.pds.contains(&pd) {
        return Err(Reject::PdUnknown);
    }
    if objects.mkeys.values().any(|mkey| mkey.pd == pd)
        || objects.qps.values().any(|qp| qp.pd == pd)
        || objects.rmps.values().any(|rmp| rmp.pd == pd)
    {
        return Err(Reject::PdBusy);
    }
    objects.pds.remove(&pd);
    Ok(())
}

pub(super) fn alloc_transport_domain(dev: &mut Device, _: &[u8], output: &mut [u8]) -> Done {
    let count = 1 << dev.hca.caps.current("log_max_transport_domain");
    let domain = dev.objects.free_transport_domain(count).ok_or(Reject::NoTransportDomain)?;
    dev.objects.transport_domains.insert(domain);
    number(output, domain)
}

pub(super) fn dealloc_transport_domain(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let known = dev.objects.transport_domains.remove(&be24(input, 0x9));
    if known { Ok(()) } else { Err(Reject::TransportDomainUnknown) }
}
