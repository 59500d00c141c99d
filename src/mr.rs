//! Memory regions: memory that work requests may name.
//!
//! A [`DmaBuf`] owns its memory and hands it out by copy or as atomics only, so the device may write to it at any time. A
//! [`Mr`] is the caller's own memory, and making one is `unsafe`.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::cmd::{CreateMkey, DestroyMkey};
use mlx5_hw::mkc::{AccessMode, Mkc};

use crate::device::Patience;
use crate::dma::{self, DmaRegion};
use crate::error::{Error, Returned};
use crate::flags::AccessFlags;
use crate::keys::{Region, Writes};
use crate::pages_of;
use crate::pd::{Member, Pd};

const OUT_OF_RANGE: Error = Error::Invalid { what: "the range does not lie in the buffer" };

/// The queue pair number that stands for "any" in a key's context.
const ANY_QP: u32 = 0xff_ffff;

/// Name of the caller's memory in the list of what the device still holds.
const CALLERS_MEMORY: &str = "the caller's registered memory";

/// Rights that verbs call optional (`IBV_ACCESS_OPTIONAL_RANGE`, of which relaxed ordering is one): without effect where they
/// are not known.
const OPTIONAL_ACCESS: AccessFlags = AccessFlags::from_bits_retain(0x3ff0_0000);

/// Refuses what `ibv_reg_mr(3)` refuses.
fn check(length: usize, access: AccessFlags) -> Result<(), Error> {
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if !AccessFlags::all().union(OPTIONAL_ACCESS).contains(access) {
        return Err(Error::Invalid { what: "unknown bit in access" });
    }
    if access.intersects(writes) && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(Error::Invalid { what: "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE" });
    }
    if length == 0 || length > isize::MAX as usize {
        return Err(Error::Invalid { what: "the length is 0 or more than an address space has" });
    }
    Ok(())
}

/// A memory key on the device, and in the table by which data in completions finds its place.
struct Mkey {
    member: Member,
    index: u32,
    variant: u8,
    region: Region,
    /// It stands in the table.
    published: bool,
    destroyed: bool,
}

impl Mkey {
    /// Creates a key through which the addresses of the region, which lies at `iova`, can be named.
    ///
    /// # Safety
    /// The region's memory may be written to as `writes` says until the key is destroyed or dropped.
    unsafe fn create(
        member: Member,
        (start, length): (NonNull<u8>, usize),
        iova: u64,
        access: AccessFlags,
        writes: Writes,
    ) -> Result<Self, Error> {
        let writes = if access.contains(AccessFlags::LOCAL_WRITE) { writes } else { Writes::Denied };
        let region = Region { start, len: length, writes };
        let start = start.addr().get() as u64;
        let pages = pages_of::region(start, iova, length as u64);
        let dev = member.pd().dev();
        let variant = dev.numbers().next_key_variant();
        let mkc = Mkc::new()
            .with_lr(true)
            .with_lw(access.contains(AccessFlags::LOCAL_WRITE))
            .with_rr(access.contains(AccessFlags::REMOTE_READ))
            .with_rw(access.contains(AccessFlags::REMOTE_WRITE))
            .with_a(access.contains(AccessFlags::REMOTE_ATOMIC))
            .with_access_mode(AccessMode::MTT)
            .with_qpn(ANY_QP)
            .with_mkey_7_0(variant.into())
            .with_pd(member.pd().pdn())
            .with_start_addr(start)
            .with_len(length as u64)
            .with_translations_octword_size(pages.addresses.len().div_ceil(2) as u32)
            .with_log_page_size(pages.log_size);
        let index = dev.exec(&CreateMkey { mkc, translations: &pages.addresses })?;
        // SAFETY: the caller's promise; `destroy` and `drop` withdraw it.
        if !unsafe { dev.keys().publish(index << 8 | u32::from(variant), member.pd().pdn(), region) } {
            return Err(Error::Protocol { what: "CREATE_MKEY answered with the index of a key that is alive" });
        }
        dev.track();
        Ok(Self { member, index, variant, region, published: true, destroyed: false })
    }

    fn key(&self) -> u32 {
        self.index << 8 | u32::from(self.variant)
    }

    fn destroy(&mut self, patience: Patience) -> Result<(), Error> {
        if self.destroyed {
            return Ok(());
        }
        // First of all, as the device may give the index to another key as soon as it has destroyed this one.
        self.withdraw();
        let pd = self.member.pd();
        let destroyed = pd.dev().exec_with(patience, &DestroyMkey { mkey_index: self.index });
        match destroyed {
            Ok(()) => self.destroyed = true,
            // The region goes back to the caller as it was.
            // SAFETY: the promise to `create` still holds; the next call and `drop` withdraw it.
            Err(_) => self.published = unsafe { pd.dev().keys().publish(self.key(), pd.pdn(), self.region) },
        }
        destroyed
    }

    /// Ends copies from completions to the region.
    fn withdraw(&mut self) {
        let dev = self.member.pd().dev();
        if core::mem::take(&mut self.published) {
            dev.keys().withdraw(self.key(), || dev.port().platform().relax());
        }
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        // Whoever owns the memory has destroyed the key, or keeps the memory from the device because that failed.
        self.withdraw();
        self.member.pd().dev().untrack();
    }
}

/// Registered memory that the driver owns: zeroed at first.
///
/// The device and other threads may change it at any time, so it is never lent as a slice: [`read`](Self::read) and
/// [`write`](Self::write) copy, [`words`](Self::words) are atomics. Dropping it deregisters it; memory whose
/// deregistration fails is kept until a reset and counted in [`Device::leaked`](crate::Device::leaked).
pub struct DmaBuf {
    key: Mkey,
    mem: DmaRegion,
}

impl Pd {
    /// Allocates and registers `len` bytes.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a length of 0 or beyond any address space, unknown access bits that are not optional, and remote write or atomic access without local write;
    /// `NoMemory` (ENOMEM); `Protocol` (EPROTO) for a key whose index another one has; what the device answers.
    pub fn alloc_buf(&self, len: usize, access: AccessFlags) -> Result<DmaBuf, Error> {
        check(len, access)?;
        let mut mem = self.shared().dev().alloc_dma(len.next_multiple_of(4), 0)?;
        let start = NonNull::from(mem.words()).cast();
        mem.lend("registered buffer");
        // SAFETY: memory of atomic words, which `DmaBuf` drops behind the key.
        match unsafe { Mkey::create(self.join(), (start, len), mem.iova(), access, Writes::Words) } {
            Ok(key) => Ok(DmaBuf { key, mem }),
            Err(error) => {
                if error.refused() {
                    mem.reclaim();
                }
                Err(error)
            }
        }
    }

    /// Registers the caller's memory (`ibv_reg_mr(3)`). Work requests then name it by its address and the keys.
    ///
    /// # Errors
    /// As [`alloc_buf`](Self::alloc_buf), and `Platform` with what the platform says of mapping the memory: that it cannot
    /// (EOPNOTSUPP), that the process may not lock so much (ENOMEM, with both numbers), or the system's own number.
    /// After an error that leaves the command's fate open ([`Error::refused`] is false) the memory still belongs to the
    /// device, until a reset; [`Device::leaked`](crate::Device::leaked) then lists it.
    ///
    /// # Safety
    /// The memory stays valid until [`Mr::dereg`] has succeeded, or until the `Mr` has been dropped and a reset of the function has
    /// succeeded. Meanwhile no `&` or `&mut` to it lives while the device may write to it, nor an `&mut` while the device may
    /// read it. With [`ALLOW_SCATTER_TO_CQE`](crate::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE) the processor writes in the device's place: of what a
    /// request may write, polling its completion writes the last bytes, with atomic stores of single bytes, in the thread that polls.
    pub unsafe fn reg_mr(&self, addr: NonNull<u8>, length: usize, access: AccessFlags) -> Result<Mr, Error> {
        check(length, access)?;
        let dev = self.shared().dev();
        // SAFETY: the caller promises what `map` asks for.
        let iova = unsafe { dev.port().platform().map(addr, length) }?;
        if (addr.addr().get() as u64 ^ iova) & 0xfff != 0 {
            // SAFETY: just mapped, and no command has named it.
            if unsafe { dev.port().platform().unmap(iova, length) }.is_err() {
                dev.port().keep(CALLERS_MEMORY, iova, length);
            }
            return Err(Error::Invalid { what: "the platform maps the memory at another offset in a page" });
        }
        // SAFETY: the caller's promise for as long as the `Mr` is there, which drops the key.
        match unsafe { Mkey::create(self.join(), (addr, length), iova, access, Writes::Bytes) } {
            Ok(key) => Ok(Mr { key, iova, mapped: true }),
            Err(error) => {
                // SAFETY: mapped above, and the device has refused the key that names it.
                let unmapped = error.refused() && unsafe { dev.port().platform().unmap(iova, length) }.is_ok();
                if !unmapped {
                    dev.port().keep(CALLERS_MEMORY, iova, length);
                }
                Err(error)
            }
        }
    }
}

impl DmaBuf {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.key.region.len
    }

    /// Never: a region of length 0 can't be registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address by which work requests name the first byte.
    pub fn addr(&self) -> u64 {
        self.mem.words().as_ptr() as u64
    }

    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.key.key()
    }

    /// Key for the peer's work requests.
    pub fn rkey(&self) -> u32 {
        self.key.key()
    }

    /// The memory as 32-bit words in memory order; the last one may reach beyond [`len`](Self::len).
    pub fn words(&self) -> &[AtomicU32] {
        self.mem.words().get(..self.len().div_ceil(4)).unwrap_or_default()
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) when they do not all lie in the buffer; nothing is copied then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let mut at = self.range(offset, out.len())?;
        let mut rest = out;
        while !rest.is_empty() {
            let (Some(word), from) = (self.words().get(at / 4), at % 4) else { return Err(OUT_OF_RANGE) };
            let n = rest.len().min(4 - from);
            let (now, later) = rest.split_at_mut(n);
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            for (to, byte) in now.iter_mut().zip(bytes.iter().skip(from)) {
                *to = *byte;
            }
            (rest, at) = (later, at + n);
        }
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) when they would not all lie in the buffer; nothing is copied then.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let at = self.range(offset, data.len())?;
        dma::copy_in(self.words(), at, data);
        Ok(())
    }

    /// Deregisters the buffer (`ibv_dereg_mr(3)`) and frees its memory.
    ///
    /// # Errors
    /// The buffer comes back, with what the device answered.
    #[expect(clippy::result_large_err, reason = "the buffer itself comes back")]
    pub fn dereg(mut self) -> Result<(), Returned<Self>> {
        match self.key.destroy(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    fn range(&self, offset: usize, len: usize) -> Result<usize, Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(offset),
            _ => Err(OUT_OF_RANGE),
        }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if self.key.destroy(Patience::Short).is_ok() {
            self.mem.reclaim();
        }
    }
}

impl fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaBuf").field("len", &self.len()).field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}

/// Registered memory of the caller's own (`ibv_reg_mr(3)`); see [`Pd::reg_mr`] for what the caller has promised.
///
/// Dropping it deregisters it. If that fails, the memory still belongs to the device until a reset, and stays mapped.
pub struct Mr {
    key: Mkey,
    iova: u64,
    mapped: bool,
}

impl Mr {
    /// The memory's address, as given.
    pub fn addr(&self) -> NonNull<u8> {
        self.key.region.start
    }

    /// Its length in bytes, as given.
    pub fn length(&self) -> usize {
        self.key.region.len
    }

    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.key.key()
    }

    /// Key for the peer's work requests.
    pub fn rkey(&self) -> u32 {
        self.key.key()
    }

    /// Deregisters the memory (`ibv_dereg_mr(3)`). From its success on the memory is the caller's alone.
    ///
    /// # Errors
    /// The region comes back, with what the device or the platform answered; the memory still belongs to the device.
    pub fn dereg(mut self) -> Result<(), Returned<Self>> {
        match self.end(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    fn end(&mut self, patience: Patience) -> Result<(), Error> {
        self.key.destroy(patience)?;
        if self.mapped {
            // SAFETY: exactly the range that `reg_mr` mapped; the key is destroyed, so the device no longer reaches it.
            unsafe { self.key.member.pd().dev().port().platform().unmap(self.iova, self.length()) }?;
            self.mapped = false;
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.end(Patience::Short).is_err() {
            self.key.member.pd().dev().port().keep(CALLERS_MEMORY, self.iova, self.length());
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr").field("length", &self.length()).field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}
