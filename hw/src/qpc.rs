//! Queue pair context and address path.

crate::prm! {
    /// Address path of a QP (PRM `ads`).
    pub struct Ads("ads", 44) {
        /// Force loopback: packets come back to this port.
        fl: 0x00, 1;
        /// Adaptive routing is free to reorder packets.
        free_ar: 0x01, 1;
        /// Index in the port's P_Key table.
        pkey_index: 0x10, 16;
        /// Plane of a multi-plane port; 0 for the device's choice.
        plane_index: 0x20, 8;
        /// Packets carry a global routing header. InfiniBand only.
        grh: 0x28, 1;
        /// Source path bits of the LID.
        mlid: 0x29, 7;
        /// Destination LID.
        rlid: 0x30, 16;
        /// Acknowledge timeout: 4.096 µs << value; 0 waits for ever.
        ack_timeout: 0x40, 5;
        /// Index in the RoCE address (GID) table.
        src_addr_index: 0x48, 8;
        /// Static rate: [`StatRate`].
        stat_rate: 0x54, 4;
        /// Hop limit.
        hop_limit: 0x58, 8;
        /// Traffic class of the routing header. InfiniBand and RoCE v1.
        tclass: 0x64, 8;
        /// Flow label.
        flow_label: 0x6c, 20;
        /// Destination GID or IP address, most significant byte first.
        rgid_rip: 0x80, [8; 16];
        /// Force `dscp` in packets.
        f_dscp: 0x104, 1;
        /// Force `ecn` in packets.
        f_ecn: 0x105, 1;
        /// Force `eth_prio` in packets.
        f_eth_prio: 0x107, 1;
        /// Congestion notification bits of the IP header.
        ecn: 0x108, 2;
        /// Differentiated services code point of the IP header. RoCE v2.
        dscp: 0x10a, 6;
        /// UDP source port. RoCE v2.
        udp_sport: 0x110, 16;
        /// Drop-eligible bit of the VLAN tag.
        dei_cfi: 0x120, 1;
        /// Ethernet priority.
        eth_prio: 0x121, 3;
        /// Service level. InfiniBand.
        sl: 0x124, 4;
        /// Port, 1 for the first.
        vhca_port_num: 0x128, 8;
        /// Destination MAC address, first two bytes. RoCE.
        rmac_47_32: 0x130, 16;
        /// Destination MAC address, last four bytes. RoCE.
        rmac_31_0: 0x140, 32;
    }
}

crate::prm! {
    /// Queue pair context (PRM `qpc`).
    pub struct Qpc("qpc", 232) {
        /// State: [`QpState`]. Written by the device.
        state: 0x00, 4;
        /// Port of a bond to send from; 0 for the device's choice.
        lag_tx_port_affinity: 0x04, 4;
        /// Service type: [`ServiceType`].
        st: 0x08, 8;
        /// Keep the QP's traffic apart on its virtual lane or traffic class.
        isolate_vl_tc: 0x12, 1;
        /// Path migration: [`PmState`].
        pm_state: 0x13, 2;
        /// End-to-end credits of the requester.
        req_e2e_credit_mode: 0x16, 2;
        /// Kind of offload; 0 for none.
        offload_type: 0x18, 4;
        /// Inbound writes are padded to whole cache lines: 1.
        end_padding_mode: 0x1c, 2;
        /// Work queue entries carry signatures.
        wq_signature: 0x20, 1;
        /// Do not loop multicast back.
        block_lb_mc: 0x21, 1;
        /// RDMA writes of 8 bytes behave like atomics.
        atomic_like_write_en: 0x22, 1;
        /// Prefer latency to throughput.
        latency_sensitive: 0x23, 1;
        /// Drain the queue on a signature error.
        drain_sigerr: 0x25, 1;
        /// The two `dp_ordering` bits hold whatever the device's default is.
        dp_ordering_force: 0x27, 1;
        /// Protection domain.
        pd: 0x28, 24;
        /// Path MTU: [`QpMtu`].
        mtu: 0x40, 3;
        /// log2 of the longest message in bytes.
        log_msg_max: 0x43, 5;
        /// log2 of the number of receive work queue entries.
        log_rq_size: 0x49, 4;
        /// log2 of a receive work queue entry's size in units of 16 bytes.
        log_rq_stride: 0x4d, 3;
        /// The QP has no send queue.
        no_sq: 0x50, 1;
        /// log2 of the number of 64-byte units of the send queue.
        log_sq_size: 0x51, 4;
        /// How lost packets are sent again: 0 the device's default.
        retry_mode: 0x56, 2;
        /// Time stamps of completions: [`TsFormat`].
        ts_format: 0x58, 2;
        /// Inbound data is written in order.
        data_in_order: 0x5a, 1;
        /// The reserved lkey may be used in work requests.
        rlky: 0x5b, 1;
        /// Offload for an upper-layer protocol; 0 for none.
        ulp_stateless_offload_mode: 0x5c, 4;
        /// Queue counter set that the QP counts in.
        counter_set_id: 0x60, 8;
        /// Index of the UAR page that the send queue rings.
        uar_page: 0x68, 24;
        /// Number that completions carry for this QP, with CQE version 1. 0xffffff means none.
        user_index: 0x88, 24;
        /// log2 of the page size of the address list, less 12: 0 means 4 KiB.
        log_page_size: 0xa3, 5;
        /// QP number of the peer.
        remote_qpn: 0xa8, 24;
        /// Path to the peer.
        primary_address_path: 0xc0, Ads;
        /// Alternate path to the peer.
        secondary_address_path: 0x220, Ads;
        /// log2 of how many packets are sent between acknowledge requests.
        log_ack_req_freq: 0x380, 4;
        /// log2 of the RDMA reads and atomics outstanding as requester.
        log_sra_max: 0x388, 3;
        /// Retries after a timeout or a lost packet before the QP fails.
        retry_count: 0x38d, 3;
        /// Retries after a receiver-not-ready answer; 7 for ever.
        rnr_retry: 0x390, 3;
        /// Fast registration through the send queue is allowed.
        fre: 0x394, 1;
        /// Receiver-not-ready retries left. Written by the device.
        cur_rnr_retry: 0x395, 3;
        /// Retries left. Written by the device.
        cur_retry_count: 0x398, 3;
        /// Index of the packet pacing rate; 0 for none.
        packet_pacing_rate_limit_index: 0x3b0, 16;
        /// Packet sequence number of the next packet to send.
        next_send_psn: 0x3c8, 24;
        /// log2 of the stream channels of a dynamically connected initiator.
        log_num_dci_stream_channels: 0x3e3, 5;
        /// Completion queue of the send queue.
        cqn_snd: 0x3e8, 24;
        /// log2 of how many stream channels may fail before the QP does.
        log_num_dci_errored_streams: 0x403, 5;
        /// Source QP number in datagrams.
        deth_sqpn: 0x408, 24;
        /// Sequence number last acknowledged. Written by the device.
        last_acked_psn: 0x448, 24;
        /// Send sequence number. Written by the device.
        ssn: 0x468, 24;
        /// log2 of the RDMA reads and atomics outstanding as responder.
        log_rra_max: 0x488, 3;
        /// Size of atomics that are accepted: [`AtomicMode`].
        atomic_mode: 0x48c, 4;
        /// Remote reads are accepted.
        rre: 0x490, 1;
        /// Remote writes are accepted.
        rwe: 0x491, 1;
        /// Remote atomics are accepted.
        rae: 0x492, 1;
        /// Offset of the work queue buffer within its first page, in units of 64 bytes.
        page_offset: 0x494, 6;
        /// Second bit of the data placement ordering mode.
        dp_ordering_1: 0x49c, 1;
        /// The receive queue is driven by another QP (cross-channel).
        cd_slave_receive: 0x49d, 1;
        /// The send queue is driven by another QP (cross-channel).
        cd_slave_send: 0x49e, 1;
        /// The QP may drive others (cross-channel).
        cd_master: 0x49f, 1;
        /// Code of the shortest receiver-not-ready timer that the QP answers with.
        min_rnr_nak: 0x4a3, 5;
        /// Packet sequence number expected next.
        next_rcv_psn: 0x4a8, 24;
        /// XRC domain.
        xrcd: 0x4c8, 24;
        /// Completion queue of the receive queue.
        cqn_rcv: 0x4e8, 24;
        /// I/O address of the doorbell record: receive counter, then send counter; 8 bytes, aligned to 8.
        dbr_addr: 0x500, 64;
        /// Q_Key of datagrams.
        q_key: 0x540, 32;
        /// Kind of receive queue: [`RqType`].
        rq_type: 0x565, 3;
        /// Number of the shared receive queue, with an `rq_type` that has one.
        srqn_rmpn_xrqn: 0x568, 24;
        /// Receive message sequence number. Written by the device.
        rmsn: 0x588, 24;
        /// Send queue units that the device has read. Written by the device.
        hw_sq_wqebb_counter: 0x5a0, 16;
        /// Send queue units posted, as the device saw them. Written by the device.
        sw_sq_wqebb_counter: 0x5b0, 16;
        /// Receive entries that the device has read. Written by the device.
        hw_rq_counter: 0x5c0, 32;
        /// Receive entries posted, as the device saw them. Written by the device.
        sw_rq_counter: 0x5e0, 32;
        /// GID index of packets is that of the context.
        cgs: 0x62f, 1;
        /// Scatter of small read answers into requester CQEs: [`CsReq`].
        cs_req: 0x630, 8;
        /// Scatter of small receives into responder CQEs: [`CsRes`].
        cs_res: 0x638, 8;
        /// Access key of dynamically connected transport.
        dc_access_key: 0x640, 64;
        /// `dbr_addr` is an offset in the user memory object `dbr_umem_id`.
        dbr_umem_valid: 0x683, 1;
        /// User memory object that holds the doorbell record.
        dbr_umem_id: 0x720, 32;
    }
}

crate::prm! {
    /// Last error of a QP (PRM `cqe_error_syndrome`), as an error CQE gives it.
    pub struct CqeErrorSyndrome("cqe_error_syndrome", 4) {
        /// Hardware error syndrome.
        hw_error_syndrome: 0x00, 8;
        /// Kind of the hardware syndrome.
        hw_syndrome_type: 0x08, 4;
        /// Vendor error syndrome.
        vendor_error_syndrome: 0x10, 8;
        /// Syndrome, as in an error CQE.
        syndrome: 0x18, 8;
    }
}

crate::prm! {
    /// Extension of the QP context (PRM `qp_context_extension`), used with `qpc_ext`.
    pub struct QpContextExtension("qp_context_extension", 192) {
        /// The QP may post memory-to-memory operations.
        mmo: 0x02, 1;
        /// Stream channel of a dynamically connected initiator.
        dci_stream_channel_id: 0x10, 16;
        /// Queue group of the requester.
        qos_queue_group_id_requester: 0x20, 32;
        /// Queue group of the responder.
        qos_queue_group_id_responder: 0x40, 32;
        /// Last error of the QP.
        error_syndrome: 0x60, CqeErrorSyndrome;
    }
}

crate::prm! {
    /// Context extension with the page list behind it (PRM `qpc_extension_and_pas_list_in`).
    pub struct QpcExtensionAndPasListIn("qpc_extension_and_pas_list_in", 192) {
        /// The extension.
        qpc_data_extension: 0x00, QpContextExtension;
        /// I/O addresses of the work queue buffer's pages.
        pas: 0x600, [64;];
    }
}

crate::prm_values! {
    /// State of a QP (PRM `qpc.state`).
    pub struct QpState(u8) {
        /// Reset.
        RST = 0x0;
        /// Initialised: receives may be posted.
        INIT = 0x1;
        /// Ready to receive.
        RTR = 0x2;
        /// Ready to send.
        RTS = 0x3;
        /// Send queue error.
        SQER = 0x4;
        /// Send queue drained.
        SQD = 0x5;
        /// Error: all work is flushed.
        ERR = 0x6;
        /// Send queue draining.
        SQ_DRAINING = 0x7;
        /// Suspended.
        SUSPENDED = 0x9;
    }
}

crate::prm_values! {
    /// Service type of a QP (PRM `qpc.st`).
    pub struct ServiceType(u8) {
        /// Reliable connection.
        RC = 0x0;
        /// Unreliable connection.
        UC = 0x1;
        /// Unreliable datagram.
        UD = 0x2;
        /// Extended reliable connection.
        XRC = 0x3;
        /// Raw InfiniBand.
        MLX = 0x4;
        /// Dynamically connected initiator.
        DCI = 0x5;
        /// Dynamically connected target.
        DCT = 0x6;
        /// Subnet management.
        QP0 = 0x7;
        /// General services.
        QP1 = 0x8;
        /// Raw Ethernet.
        RAW_ETHERTYPE = 0x9;
        /// Raw IPv6.
        RAW_IPV6 = 0xa;
        /// Sniffer.
        SNIFFER = 0xb;
        /// Registration through UMR.
        REG_UMR = 0xc;
        /// Precision time protocol.
        PTP_1588 = 0xd;
        /// Synchronous UMR.
        SYNC_UMR = 0xe;
    }
}

crate::prm_values! {
    /// Path migration state of a QP (PRM `qpc.pm_state`).
    pub struct PmState(u8) {
        /// Armed: the device may move to the alternate path.
        ARMED = 0x0;
        /// Load the alternate path and arm.
        REARM = 0x1;
        /// On the primary path; nothing armed.
        MIGRATED = 0x3;
    }
}

crate::prm_values! {
    /// Path MTU of a QP (PRM `qpc.mtu`).
    pub struct QpMtu(u8) {
        /// 256 bytes.
        MTU_256 as "256_BYTES" = 0x1;
        /// 512 bytes.
        MTU_512 as "512_BYTES" = 0x2;
        /// 1024 bytes.
        MTU_1K as "1K_BYTES" = 0x3;
        /// 2048 bytes.
        MTU_2K as "2K_BYTES" = 0x4;
        /// 4096 bytes.
        MTU_4K as "4K_BYTES" = 0x5;
        /// That of the port: raw Ethernet QPs.
        RAW_ETHERNET_QP = 0x7;
    }
}

crate::prm_values! {
    /// Time stamp format of a queue (PRM `ts_format`).
    pub struct TsFormat(u8) {
        /// Ticks of the free running counter.
        FREE_RUNNING = 0x0;
        /// The device's default.
        DEFAULT = 0x1;
        /// Seconds and nanoseconds of the real-time clock.
        REAL_TIME = 0x2;
    }
}

crate::prm_values! {
    /// Atomics that a QP accepts (PRM `qpc.atomic_mode`).
    pub struct AtomicMode(u8) {
        /// As the InfiniBand specification says: 8 bytes, atomic among QPs.
        IB_SPEC = 0x1;
        /// 8 bytes only.
        ONLY_8B = 0x2;
        /// Up to 8 bytes.
        UP_TO_8B = 0x3;
        /// Up to 16 bytes.
        UP_TO_16B = 0x4;
        /// Up to 32 bytes.
        UP_TO_32B = 0x5;
        /// Up to 64 bytes.
        UP_TO_64B = 0x6;
        /// Up to 128 bytes.
        UP_TO_128B = 0x7;
        /// Up to 256 bytes.
        UP_TO_256B = 0x8;
    }
}

crate::prm_values! {
    /// Kind of receive queue of a QP (PRM `qpc.rq_type`).
    pub struct RqType(u8) {
        /// Its own receive queue.
        NON_ZERO_RQ = 0x0;
        /// A shared receive queue.
        SRQ_RQ = 0x1;
        /// A cross-channel receive queue.
        CRQ_RQ = 0x2;
        /// None.
        ZERO_LEN_RQ = 0x3;
    }
}

crate::prm_values! {
    /// Scatter of small read answers into requester CQEs (PRM `qpc.cs_req`).
    pub struct CsReq(u8) {
        /// Off.
        DISABLE = 0x0;
        /// Up to 32 bytes into 64-byte CQEs.
        UP_TO_32B = 0x11;
        /// Up to 64 bytes into 128-byte CQEs.
        UP_TO_64B = 0x22;
    }
}

crate::prm_values! {
    /// Scatter of small receives into responder CQEs (PRM `qpc.cs_res`).
    pub struct CsRes(u8) {
        /// Off.
        DISABLE = 0x0;
        /// Up to 32 bytes into 64-byte CQEs.
        UP_TO_32B = 0x1;
        /// Up to 64 bytes into 128-byte CQEs.
        UP_TO_64B = 0x2;
    }
}

crate::prm_values! {
    /// Static rate of an address path (PRM `ads.stat_rate`).
    pub struct StatRate(u8) {
        /// No limit.
        NO_LIMIT = 0x0;
        /// 2.5 Gbit/s.
        RATE_2_5GBPS as "2_5GBPS" = 0x7;
        /// 10 Gbit/s.
        RATE_10GBPS as "10GBPS" = 0x8;
        /// 30 Gbit/s.
        RATE_30GBPS as "30GBPS" = 0x9;
        /// 5 Gbit/s.
        RATE_5GBPS as "5GBPS" = 0xa;
        /// 20 Gbit/s.
        RATE_20GBPS as "20GBPS" = 0xb;
        /// 40 Gbit/s.
        RATE_40GBPS as "40GBPS" = 0xc;
        /// 60 Gbit/s.
        RATE_60GBPS as "60GBPS" = 0xd;
        /// 80 Gbit/s.
        RATE_80GBPS as "80GBPS" = 0xe;
        /// 120 Gbit/s.
        RATE_120GBPS as "120GBPS" = 0xf;
    }
}

crate::prm_values! {
    /// Bits of `opt_param_mask`: optional fields that a QP transition takes from the context.
    pub struct OptParam(u32) {
        /// Alternate address path.
        ALT_ADDR_PATH = 0x1;
        /// Remote read enable.
        RRE = 0x2;
        /// Remote atomic enable.
        RAE = 0x4;
        /// Remote write enable.
        RWE = 0x8;
        /// P_Key index.
        PKEY_INDEX = 0x10;
        /// Q_Key.
        Q_KEY = 0x20;
        /// Receiver-not-ready timer.
        RNR_TIMEOUT = 0x40;
        /// Primary address path.
        PRIMARY_ADDR_PATH = 0x80;
        /// Outstanding reads and atomics as requester.
        SRA_MAX = 0x100;
        /// Outstanding reads and atomics as responder.
        RRA_MAX = 0x200;
        /// Path migration state.
        PM_STATE = 0x400;
        /// Retry count.
        RETRY_COUNT = 0x1000;
        /// Receiver-not-ready retries.
        RNR_RETRY = 0x2000;
        /// Acknowledge timeout.
        ACK_TIMEOUT = 0x4000;
        /// Port affinity in a bond.
        LAG_TX_AFF = 0x8000;
        /// Primary port.
        PRI_PORT = 0x10000;
        /// Shared receive queue.
        SRQN = 0x40000;
        /// Receive completion queue.
        CQN_RCV = 0x80000;
        /// Half handshake of dynamically connected transport.
        DC_HS = 0x100000;
        /// Access key of dynamically connected transport.
        DC_KEY = 0x200000;
        /// Packet pacing rate index.
        PP_INDEX = 0x400000;
        /// Queue counter set.
        COUNTER_SET_ID = 0x2000000;
    }
}
