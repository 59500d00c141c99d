//! Pages for firmware: what it wants, giving, taking back.

use std::collections::BTreeSet;

use super::{Reject, own_function};
use crate::bytes::{be16, be32, be64, put32, put64};
use crate::cmdif;
use crate::device::Device;
use crate::hca::HcaState;
use crate::pages::PAGE;

type Done = Result<(), Reject>;

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_function(input)?;
    let missing = match be16(input, 6) {
        1 => dev.pages.missing(dev.config.boot_pages) as i32,
        2 => dev.pages.missing(dev.base_pages()) as i32,
        _ => dev.pages.extra_missing(dev.base_pages()) as i32,
    };
    put32(output, 0xc, missing as u32);
    Ok(())
}

pub(super) fn manage(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    own_function(input)?;
    let count = be32(input, 0xc) as usize;
    match be16(input, 6) {
        0 => refuse(dev, input, output),
        1 => give(dev, input, output, count),
        _ => take(dev, input, output, count),
    }
}

fn refuse(dev: &mut Device, input: &[u8], output: &[u8]) -> Done {
    lengths(input, 16, output, 16)?;
    dev.pages_refused();
    cmdif::pages_changed(dev, true);
    Ok(())
}

fn lengths(input: &[u8], in_len: usize, output: &[u8], out_len: usize) -> Done {
    if input.len() != in_len {
        return Err(Reject::InputTail);
    }
    if output.len() != out_len { Err(Reject::OutputLength) } else { Ok(()) }
}

fn give(dev: &mut Device, input: &[u8], output: &[u8], count: usize) -> Done {
    lengths(input, count.saturating_mul(8).saturating_add(16), output, 16)?;
    let pages: Vec<u64> = input[16..].chunks_exact(8).map(|pa| be64(pa, 0)).collect();
    if pages.is_empty() {
        return Err(Reject::PageCount);
    }
    let mut seen = BTreeSet::new();
    for page in &pages {
        check_page(dev, *page)?;
        if !seen.insert(page) {
            return Err(Reject::PageTwice);
        }
    }
    for page in pages {
        dev.page_given(page);
    }
    cmdif::pages_changed(dev, false);
    Ok(())
}

fn check_page(dev: &Device, page: u64) -> Done {
    if page == 0 || !page.is_multiple_of(PAGE as u64) {
        return Err(Reject::PageAlign);
    }
    if dev.pages.has(page) {
        return Err(Reject::PageTwice);
    }
    if !dev.dma.is_mapped(page, PAGE) {
        return Err(Reject::PageUnmapped);
    }
    if dev.owner_of(page, PAGE as u64).is_some() { Err(Reject::PageInUse) } else { Ok(()) }
}

fn take(dev: &mut Device, input: &[u8], output: &mut [u8], count: usize) -> Done {
    lengths(input, 16, output, count.saturating_mul(8).saturating_add(16))?;
    let most = match dev.hca.state {
        HcaState::Initialized => dev.pages.spare(dev.base_pages()),
        _ => dev.pages.count(),
    };
    let pages = dev.pages_taken(count.min(most));
    put32(output, 0x8, pages.len() as u32);
    for (index, page) in pages.iter().enumerate() {
        put64(output, 0x10 + 8 * index, *page);
    }
    Ok(())
}
