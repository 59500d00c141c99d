//! What each message of a client does to the device.

use std::fs::File;
use std::io;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use super::files::Files;
use super::irq::EventFd;
use crate::bar;
use crate::dma::{MapError, Rights, UnmapError};
use crate::held::ReleaseKind;
use crate::irqs::Signal;
use crate::model::Model;
use crate::pci::CONFIG_BYTES;

/// `VFIO_DMA_UNMAP_FLAG_ALL`; the protocol's crate gives this bit another name.
const UNMAP_ALL: u32 = 1 << 1;
/// The widest access to a register, in bytes.
const WIDEST: usize = 8;

/// A device with the memory of one client.
pub(super) struct Backend<'a> {
    model: &'a Model,
    files: Files,
}

type Done = Result<(), io::Error>;

fn refuse(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

impl<'a> Backend<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self { model, files: Files::default() }
    }

    fn config_read(&self, offset: usize, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = offset.checked_add(i).map_or(0xff, |at| self.model.config_read(at, 1) as u8);
        }
    }

    fn config_write(&self, offset: usize, data: &[u8]) {
        // What is wider than a register is no access that a bus makes.
        if data.len() <= 4 {
            let value = data.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            self.model.config_write(offset, data.len(), value);
        }
    }

    fn map(&mut self, range: (u64, u64), rights: Rights, file: Option<(File, u64)>) -> Result<(), io::Error> {
        let (iova, len) = range;
        let memory = match &file {
            Some((file, offset)) => self.files.memory(file, *offset, len, rights.write)?,
            None => None,
        };
        let mut dev = self.model.lock();
        let mapped = match memory {
            // SAFETY: `memory` has checked that the file holds these bytes, and the map of the file lives in it. They belong
            // to the client, another process.
            Some((ptr, memory)) => unsafe { dev.dma.map_memory(iova, (ptr, len), rights, memory) },
            None => dev.dma.map_nothing(iova, len),
        };
        dev.gained();
        mapped.map_err(|error| {
            refuse(match error {
                MapError::Empty => "an empty range",
                MapError::Wraps => "a range beyond the last address",
                MapError::TooMany => "more ranges than there may be",
                MapError::Overlaps => "a range where something is mapped already",
            })
        })
    }
}

impl ServerBackend for Backend<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Done {
        let offset = usize::try_from(offset).map_err(|_| refuse("an offset beyond the region"))?;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX if data.len() <= CONFIG_BYTES => self.config_read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX if data.len() <= WIDEST => bar::read(&mut self.model.lock(), offset, data),
            _ => return Err(refuse("a read that no region takes")),
        }
        Ok(())
    }

    /// Writes are posted: the client expects no answer, so there is no error either.
    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Done {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config_write(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX if data.len() <= WIDEST => self.model.register_write(offset, data),
            _ => (),
        }
        Ok(())
    }

    fn dma_map(&mut self, flags: DmaMapFlags, offset: u64, address: u64, size: u64, fd: Option<File>) -> Done {
        let rights = Rights { read: flags.contains(DmaMapFlags::READ), write: flags.contains(DmaMapFlags::WRITE) };
        self.map((address, size), rights, fd.map(|file| (file, offset)))
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Done {
        let all = flags.bits() & UNMAP_ALL != 0;
        let range = (!all).then_some((address, size));
        self.model.lock().client_unmaps(range).map_err(|error| {
            refuse(match error {
                UnmapError::Wraps => "a range beyond the last address",
                UnmapError::Partial => "a part of a mapped range",
            })
        })
    }

    fn reset(&mut self) -> Done {
        self.model.power_on(Some(ReleaseKind::DeviceReset));
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> Done {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        let (_, vectors) = self.model.shape();
        let range = start..start.saturating_add(count).min(vectors);
        let mut dev = self.model.lock();
        if count == 0 {
            dev.irqs.silence();
        } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            // Without a file a vector is let go.
            let mut fds = fds.into_iter();
            for vector in range {
                dev.irqs.listen(vector, fds.next().map(|file| Box::new(EventFd::new(file)) as Box<dyn Signal>));
            }
            dev.gained();
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
            range.for_each(|vector| dev.irqs.raise(vector));
        }
        Ok(())
    }
}
