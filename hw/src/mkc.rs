//! Memory key context.

crate::prm! {
    /// Memory key context (PRM `mkc`), as CREATE_MKEY takes it and QUERY_MKEY answers it.
    pub struct Mkc("mkc", 64) {
        /// The key is created unusable, to be filled in later through a UMR.
        free: 0x01, 1;
        /// Access mode, bits 4:2; see [`AccessMode`].
        access_mode_4_2: 0x03, 3;
        /// Inbound writes through this key may pass each other on PCIe.
        relaxed_ordering_write: 0x0d, 1;
        /// Fence only as far as needed when an RDMA read answers into this memory.
        small_fence_on_rdma_read_response: 0x0f, 1;
        /// The key may be changed by UMR work requests.
        umr_en: 0x10, 1;
        /// Remote atomics are allowed.
        a: 0x11, 1;
        /// Remote writes are allowed.
        rw: 0x12, 1;
        /// Remote reads are allowed.
        rr: 0x13, 1;
        /// Local writes are allowed.
        lw: 0x14, 1;
        /// Local reads are allowed.
        lr: 0x15, 1;
        /// Access mode, bits 1:0; see [`AccessMode`].
        access_mode_1_0: 0x16, 2;
        /// How addresses of the key are translated on the memory side; 0 by default.
        ma_translation_mode: 0x1a, 2;
        /// QP that alone may use the key; 0xffffff for any QP of the protection domain.
        qpn: 0x20, 24;
        /// Low byte of the key, chosen by software; the index that CREATE_MKEY answers is the upper 24 bits.
        mkey_7_0: 0x38, 8;
        /// The key covers the whole 64-bit address space; `len` is not used.
        length64: 0x60, 1;
        /// The key carries signature descriptors (BSF).
        bsf_en: 0x61, 1;
        /// UMR work requests on the key are synchronous.
        sync_umr: 0x62, 1;
        /// Low bit of the number of signature errors that have been handled.
        expected_sigerr_count: 0x65, 1;
        /// The peer may invalidate the key (send with invalidate).
        en_rinval: 0x67, 1;
        /// Protection domain.
        pd: 0x68, 24;
        /// First address of the region as work requests name it.
        start_addr: 0x80, 64;
        /// Length in bytes.
        len: 0xc0, 64;
        /// Size of the signature descriptors in units of 16 bytes.
        bsf_octword_size: 0x100, 32;
        /// Function whose memory a key of mode CROSSING reaches.
        crossing_target_vhca_id: 0x180, 16;
        /// Room for translations in units of 16 bytes: an MTT entry takes half a unit, a KLM entry a whole one.
        translations_octword_size: 0x1a0, 32;
        /// Ordering of reads behind writes through this key.
        order_read_after_write: 0x1d6, 2;
        /// Inbound read answers through this key may pass each other on PCIe.
        relaxed_ordering_read: 0x1d9, 1;
        /// log2 of the size of the pages in the translation list, in bytes (12 means 4 KiB).
        log_page_size: 0x1da, 6;
        /// Encryption is on: 1.
        crypto_en: 0x1e3, 2;
        /// Send PCIe processing hints.
        pcie_tph_en: 0x1e5, 1;
        /// Kind of the PCIe processing hint.
        pcie_tph_ph: 0x1e6, 2;
        /// Index of the PCIe steering tag; 0 for none.
        pcie_tph_steering_tag_index: 0x1e8, 8;
    }
}

impl Mkc {
    /// The access mode, put together from its two fields.
    pub const fn access_mode(&self) -> AccessMode {
        AccessMode((self.access_mode_4_2() << 2 | self.access_mode_1_0()) as u8)
    }

    /// Sets both fields of the access mode.
    pub const fn with_access_mode(self, mode: AccessMode) -> Self {
        self.with_access_mode_4_2(mode.0 as u32 >> 2).with_access_mode_1_0(mode.0 as u32)
    }
}

crate::prm_values! {
    /// How a memory key finds its memory (PRM `mkc.access_mode`).
    pub struct AccessMode(u8) {
        /// Addresses are I/O addresses: no translation.
        PA = 0x0;
        /// A list of pages of one size.
        MTT = 0x1;
        /// A list of (length, key, address) entries.
        KLMS = 0x2;
        /// A list of (key, address) entries of one length.
        KSM = 0x3;
        /// Device memory that software manages for steering.
        SW_ICM = 0x4;
        /// Device memory for data.
        MEMIC = 0x5;
        /// Memory of another function.
        CROSSING = 0x6;
    }
}
