//! Receive memory pools: what a shared receive queue is to the device.

crate::prm! {
    /// Work queue (PRM `wq`), as the contexts of queues hold it.
    pub struct Wq("wq", 192) {
        /// Kind of the queue: [`WqType`].
        wq_type: 0x0, 4;
        /// Entries carry a signature.
        wq_signature: 0x4, 1;
        /// How short packets are padded: 0 not, 1 to a cache line.
        end_padding_mode: 0x5, 2;
        /// The queue is the slave of a cross channel.
        cd_slave: 0x7, 1;
        /// Header-data split leaves the first piece of an entry alone.
        hds_skip_first_sge: 0x20, 1;
        /// log2 of the header buffer of header-data split.
        log2_hds_buf_size: 0x21, 3;
        /// Offset of the queue within its first page, in units of a 64th of the page.
        page_offset: 0x2b, 5;
        /// Low watermark: fewer entries than this raise an event, once; 0 turns it off.
        lwm: 0x30, 16;
        /// Protection domain of the entries.
        pd: 0x48, 24;
        /// Index of the UAR page, for a send queue.
        uar_page: 0x68, 24;
        /// I/O address of the doorbell record: 8 bytes, aligned to 8.
        dbr_addr: 0x80, 64;
        /// Entries that the device has taken. Written by the device.
        hw_counter: 0xc0, 32;
        /// Entries posted, as the device last read them. Written by the device.
        sw_counter: 0xe0, 32;
        /// log2 of the bytes of an entry.
        log_wq_stride: 0x10c, 4;
        /// log2 of the page size of the address list, less 12: 0 means 4 KiB.
        log_wq_pg_sz: 0x113, 5;
        /// log2 of the number of entries.
        log_wq_sz: 0x11b, 5;
        /// `dbr_addr` is an offset in the user memory object `dbr_umem_id`, not an address.
        dbr_umem_valid: 0x120, 1;
        /// The queue is given as a user memory object, not as a list of pages.
        wq_umem_valid: 0x121, 1;
        /// log2 of the packets that a hairpin queue holds.
        log_hairpin_num_packets: 0x123, 5;
        /// log2 of the bytes that a hairpin queue holds.
        log_hairpin_data_sz: 0x12b, 5;
        /// log2 of the strides of an entry, less 9, of a striding queue.
        log_wqe_num_of_strides: 0x134, 4;
        /// Two bytes are put before each packet.
        two_byte_shift_en: 0x138, 1;
        /// log2 of the bytes of a stride, less 6.
        log_wqe_stride_size: 0x13d, 3;
        /// User memory object that holds the doorbell record, with `dbr_umem_valid`.
        dbr_umem_id: 0x140, 32;
        /// User memory object that holds the queue, with `wq_umem_valid`.
        wq_umem_id: 0x160, 32;
        /// Offset of the queue in the user memory object.
        wq_umem_offset: 0x180, 64;
        /// Key of the buffer for split headers.
        headers_mkey: 0x1c0, 32;
        /// Headers are split off and merged.
        shampo_enable: 0x1e0, 1;
        /// How headers are merged.
        shampo_mode: 0x1e2, 2;
        /// log2 of the bytes reserved for one flow.
        log_reservation_size: 0x1e5, 3;
        /// log2 of the packets merged into a reservation.
        log_max_num_of_packets_per_reservation: 0x1ed, 3;
        /// log2 of the bytes of a header entry.
        log_headers_entry_size: 0x1f6, 2;
        /// log2 of the entries of the header buffer.
        log_headers_buffer_entry_num: 0x1fc, 4;
        /// I/O addresses of the queue's pages, behind the structure.
        pas: 0x600, [64;];
    }
}

crate::prm! {
    /// Receive memory pool context (PRM `rmpc`), as CREATE_RMP takes it and QUERY_RMP answers it.
    pub struct Rmpc("rmpc", 240) {
        /// State: [`RmpState`].
        state: 0x8, 4;
        /// Entries of a cyclic queue have no header segment.
        basic_cyclic_rcv_wqe: 0x20, 1;
        /// The queue.
        wq: 0x180, Wq;
    }
}

crate::prm_values! {
    /// Kind of a work queue (PRM `wq.wq_type`).
    pub struct WqType(u8) {
        /// Entries name the next one: they are taken in the order of that list.
        LINKED_LIST = 0x0;
        /// Entries are taken in the order of their places.
        CYCLIC = 0x1;
        /// A linked list of entries with several packets each.
        LINKED_LIST_STRIDING_RQ = 0x2;
        /// A cyclic queue of entries with several packets each.
        CYCLIC_STRIDING_RQ = 0x3;
    }
}

crate::prm_values! {
    /// State of a receive memory pool (PRM `rmpc.state`).
    pub struct RmpState(u8) {
        /// It works.
        RDY = 0x1;
        /// It has failed.
        ERR = 0x3;
    }
}
