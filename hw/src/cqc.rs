//! Completion queue context.

crate::prm! {
    /// Completion queue context (PRM `cqc`), as CREATE_CQ takes it and QUERY_CQ answers it.
    pub struct Cqc("cqc", 64) {
        /// State of health: [`CqStatus`]. Written by the device.
        status: 0x00, 4;
        /// Completion notifies through an address-space notification instead of an event queue.
        as_notify: 0x04, 1;
        /// Completions of dynamically connected targets carry the initiator's number.
        initiator_src_dct: 0x05, 1;
        /// `dbr_addr` is an offset in the user memory object `dbr_umem_id`, not an address.
        dbr_umem_valid: 0x06, 1;
        /// `c_eqn_or_apu_element` names an APU element instead of an EQ.
        apu_cq: 0x07, 1;
        /// `c_eqn_or_apu_element` names an element of the kind in `ext_element_type` instead of an EQ; the bit of
        /// `apu_cq`.
        ext_element: 0x07, 1;
        /// Size and stride of an entry: [`CqeSz`].
        cqe_sz: 0x08, 3;
        /// Collapsed CQ: every entry is written to slot 0.
        cc: 0x0b, 1;
        /// A solicited completion ends moderation and raises its event at once.
        scqe_break_moderation_en: 0x0d, 1;
        /// Ignore overruns: the device does not read the consumer index; needs capability `cq_oi`.
        oi: 0x0e, 1;
        /// When the moderation timer starts: [`CqPeriodMode`].
        cq_period_mode: 0x0f, 2;
        /// Compress completions into mini CQEs; needs capability `cqe_compression`.
        cqe_comp_en: 0x11, 1;
        /// Format of a responder's mini CQE, bits 1:0 (0 hash, 1 checksum, 3 checksum and stride index); the upper
        /// bits are `mini_cqe_res_format_ext`.
        mini_cqe_res_format: 0x12, 2;
        /// Arming state: [`CqState`]. Written by the device.
        st: 0x14, 4;
        /// Every completion raises an event without arming.
        always_armed_cq: 0x18, 1;
        /// Kind of the element that `ext_element` names.
        ext_element_type: 0x19, 3;
        /// Layout of compressed sessions: 0 basic, 1 enhanced; needs capability `enhanced_cqe_compression`.
        cqe_comp_layout: 0x1e, 2;
        /// User memory object that holds the doorbell record, with `dbr_umem_valid`.
        dbr_umem_id: 0x20, 32;
        /// Offset of the ring within its first page, in units of 64 bytes.
        page_offset: 0x54, 6;
        /// Bits 3:2 of the format of a responder's mini CQE.
        mini_cqe_res_format_ext: 0x5c, 2;
        /// Time stamps: 0 free running counter, 1 the device's default, 2 real time.
        cq_timestamp_format: 0x5e, 2;
        /// log2 of the number of entries.
        log_cq_size: 0x63, 5;
        /// Index of the UAR page whose doorbell arms this CQ.
        uar_page: 0x68, 24;
        /// Moderation: microseconds before an event is raised; 0 turns moderation off.
        cq_period: 0x84, 12;
        /// Moderation: completions before an event is raised; 0 turns moderation off.
        cq_max_count: 0x90, 16;
        /// Event queue that completion events go to (or the element that `ext_element` names).
        c_eqn_or_apu_element: 0xa0, 32;
        /// Event queue number, low 8 bits of `c_eqn_or_apu_element`.
        c_eqn: 0xb8, 8;
        /// log2 of the page size of the address list, less 12: 0 means 4 KiB.
        log_page_size: 0xc3, 5;
        /// Consumer index of the last event. Written by the device.
        last_notified_index: 0x108, 24;
        /// Index of the last solicited completion. Written by the device.
        last_solicit_index: 0x128, 24;
        /// Consumer index as the device last read it. Written by the device.
        consumer_counter: 0x148, 24;
        /// Producer index. Written by the device.
        producer_counter: 0x168, 24;
        /// Partition of the address-space notification.
        local_partition_id: 0x180, 12;
        /// Process of the address-space notification.
        process_id: 0x18c, 20;
        /// I/O address of the doorbell record: 8 bytes, aligned to 8.
        dbr_addr: 0x1c0, 64;
    }
}

crate::prm_values! {
    /// Size and stride of completion queue entries (PRM `cqc.cqe_sz`): codes, not sizes.
    pub struct CqeSz(u8) {
        /// Entries of 64 bytes.
        BYTES_64 as "64_BYTES" = 0x0;
        /// Entries of 128 bytes; the descriptor is the upper half.
        BYTES_128 as "128_BYTES" = 0x1;
        /// Entries of 64 bytes, each in a slot of 128.
        PAD_128 as "128_PAD" = 0x2;
    }
}

crate::prm_values! {
    /// When the timer of completion moderation starts (PRM `cqc.cq_period_mode`).
    pub struct CqPeriodMode(u8) {
        /// At the last event.
        START_FROM_EQE = 0x0;
        /// At the last completion.
        START_FROM_CQE = 0x1;
    }
}

crate::prm_values! {
    /// Health of a completion queue (PRM `cqc.status`).
    pub struct CqStatus(u8) {
        /// The queue works.
        OK = 0x0;
        /// A completion found the ring full: the queue is dead.
        CQ_OVERFLOW = 0x9;
        /// The device could not write an entry: the queue is dead.
        CQ_WRITE_FAIL = 0xa;
    }
}

crate::prm_values! {
    /// Arming state of a completion queue (PRM `cqc.st`).
    pub struct CqState(u8) {
        /// The next solicited completion raises an event.
        SOLICITED_NOTIFICATION_REQUEST_ARMED = 0x6;
        /// The next completion raises an event.
        NOTIFICATION_REQUEST_ARMED = 0x9;
        /// The event was raised; the queue has to be armed again.
        FIRED = 0xa;
        /// Every completion raises an event.
        ALWAYS_ARMED = 0xb;
    }
}
