//! Event queue context.

crate::prm! {
    /// Event queue context (PRM `eqc`), as CREATE_EQ takes it and QUERY_EQ answers it.
    pub struct Eqc("eqc", 64) {
        /// State of health: [`EqStatus`]. Written by the device.
        status: 0x00, 4;
        /// Collapsed EQ: every entry is written to slot 0.
        ec: 0x0d, 1;
        /// Ignore overruns: the device writes on although the consumer index lags behind.
        oi: 0x0e, 1;
        /// Arming state: [`EqState`]. Written by the device.
        st: 0x14, 4;
        /// Offset of the ring within its first page, in units of 64 bytes. 0 for a ring that starts a page.
        page_offset: 0x54, 6;
        /// log2 of the number of 64-byte entries.
        log_eq_size: 0x63, 5;
        /// Index of the UAR page whose doorbells arm this EQ.
        uar_page: 0x68, 24;
        /// MSI-X vector that the EQ raises.
        intr: 0xb4, 12;
        /// log2 of the page size of the address list, less 12: 0 means 4 KiB.
        log_page_size: 0xc3, 5;
        /// Consumer index as the device last saw it. Written by the device.
        consumer_counter: 0x148, 24;
        /// Producer index. Written by the device.
        producer_counter: 0x168, 24;
    }
}

crate::prm_values! {
    /// Health of an event queue (PRM `eqc.status`).
    pub struct EqStatus(u8) {
        /// The queue works.
        OK = 0x0;
        /// The device could not write an entry.
        EQ_WRITE_FAILURE = 0xa;
    }
}

crate::prm_values! {
    /// Arming state of an event queue (PRM `eqc.st`).
    pub struct EqState(u8) {
        /// The next entry raises the interrupt.
        ARMED = 0x9;
        /// The interrupt was raised; it has to be armed again.
        FIRED = 0xa;
        /// Every entry raises the interrupt.
        ALWAYS_ARMED = 0xb;
    }
}
