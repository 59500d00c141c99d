//! General capabilities.

crate::prm! {
    /// General capabilities (PRM `cmd_hca_cap`).
    pub struct CmdHcaCap("cmd_hca_cap", 256) {
        /// The firmware never asks for pages while running.
        page_request_disable: 0x06, 1;
        /// A shared object may be made a user's.
        shared_object_to_user_object_allowed: 0x10, 1;
        /// The function manages the resources of others.
        vhca_resource_manager: 0x1f, 1;
        /// There is a second page of general capabilities.
        hca_cap_2: 0x20, 1;
        /// The firmware states default timeouts in a register.
        dtor: 0x22, 1;
        /// Number of the function.
        vhca_id: 0x30, 16;
        /// log2 of the most entries of a shared receive queue.
        log_max_srq_sz: 0x80, 8;
        /// log2 of the most entries of a QP's work queue.
        log_max_qp_sz: 0x88, 8;
        /// There is a page of event capabilities.
        event_cap: 0x90, 1;
        /// log2 of the most QPs.
        log_max_qp: 0x9b, 5;
        /// Enhanced connection establishment.
        ece_support: 0xa3, 1;
        /// log2 of the most shared receive queues.
        log_max_srq: 0xab, 5;
        /// Time stamps can go to a CQ of their own.
        ts_cqe_to_dest_cqn: 0xb2, 1;
        /// Most gather entries of a work request that run at full speed; 0 if not stated.
        max_sgl_for_optimized_performance: 0xc0, 8;
        /// log2 of the most entries of a CQ.
        log_max_cq_sz: 0xc8, 8;
        /// A UMR may switch relaxed ordering of writes.
        relaxed_ordering_write_umr: 0xd0, 1;
        /// A UMR may switch relaxed ordering of reads.
        relaxed_ordering_read_umr: 0xd1, 1;
        /// log2 of the most CQs.
        log_max_cq: 0xdb, 5;
        /// log2 of the most entries of an EQ.
        log_max_eq_sz: 0xe0, 8;
        /// Memory keys may allow relaxed ordering of writes.
        relaxed_ordering_write: 0xe8, 1;
        /// Memory keys may allow relaxed ordering of reads where PCIe has it enabled.
        relaxed_ordering_read_pci_enabled: 0xe9, 1;
        /// log2 of the most memory keys.
        log_max_mkey: 0xea, 6;
        /// There is a reserved key that ends a scatter list.
        terminate_scatter_list_mkey: 0xf6, 1;
        /// There is a reserved key of a repeated block.
        repeated_mkey: 0xf7, 1;
        /// There is a reserved key for DUMP work requests.
        dump_fill_mkey: 0xf8, 1;
        /// Profile PREPARE_FAST_TEARDOWN of TEARDOWN_HCA.
        fast_teardown: 0xfb, 1;
        /// log2 of the most EQs.
        log_max_eq: 0xfc, 4;
        /// Deepest nesting of memory keys.
        max_indirection: 0x100, 8;
        /// Memory keys of mode KSM.
        fixed_buffer_size: 0x108, 1;
        /// log2 of the longest memory region in bytes.
        log_max_mrw_sz: 0x109, 7;
        /// Profile FORCE_CLOSE of TEARDOWN_HCA.
        force_teardown: 0x110, 1;
        /// log2 of the longest list of signature descriptors.
        log_max_bsf_list_size: 0x112, 6;
        /// UMR offsets may be 32 bits wide.
        umr_extended_translation_offset: 0x118, 1;
        /// There is a reserved key that drops writes and reads zeros.
        null_mkey: 0x119, 1;
        /// log2 of the longest list of KLM entries.
        log_max_klm_list_size: 0x11a, 6;
        /// The QP context has an extension.
        qpc_extension: 0x122, 1;
        /// log2 of the most outstanding reads of a dynamically connected initiator.
        log_max_ra_req_dc: 0x12a, 6;
        /// CQ overruns are counted.
        vnic_env_cq_overrun: 0x139, 1;
        /// log2 of the most outstanding reads of a dynamically connected target.
        log_max_ra_res_dc: 0x13a, 6;
        /// A page request may ask for all pages of a function back.
        release_all_pages: 0x145, 1;
        /// log2 of the most outstanding reads of a QP as requester.
        log_max_ra_req_qp: 0x14a, 6;
        /// The UDP source port of a QP may be changed while sending.
        rts2rts_qp_udp_sport: 0x151, 1;
        /// The port affinity of a QP may be changed while sending.
        rts2rts_lag_tx_port_affinity: 0x152, 1;
        /// log2 of the most outstanding reads of a QP as responder.
        log_max_ra_res_qp: 0x15a, 6;
        /// Inbound writes may be padded to whole cache lines.
        end_pad: 0x160, 1;
        /// Congestion control may be read.
        cc_query_allowed: 0x161, 1;
        /// Congestion control may be changed.
        cc_modify_allowed: 0x162, 1;
        /// Inbound writes may start on a cache line.
        start_pad: 0x163, 1;
        /// A cache line of the device has 128 bytes.
        cache_line_128byte: 0x164, 1;
        /// The counter set of a QP may be changed while sending.
        rts2rts_qp_counters_set_id: 0x169, 1;
        /// Register QCAM.
        qcam_reg: 0x16f, 1;
        /// Code of the size of the GID table: 8 << value entries.
        gid_table_size: 0x170, 16;
        /// Packets out of sequence are counted.
        out_of_seq_cnt: 0x180, 1;
        /// There are counters of a virtual port.
        vport_counters: 0x181, 1;
        /// Queue counters count retransmissions.
        retransmission_q_counters: 0x182, 1;
        /// There is a page of debugging capabilities.
        debug: 0x183, 1;
        /// The counter set of a receive queue may be changed.
        modify_rq_counter_set_id: 0x184, 1;
        /// A receive queue that is empty may delay packets instead of dropping them.
        rq_delay_drop: 0x185, 1;
        /// Most queue counter sets; 0 if not stated.
        max_qp_cnt: 0x186, 10;
        /// Code of the size of the P_Key table: 128 << value entries.
        pkey_table_size: 0x190, 16;
        /// The function manages virtual ports.
        vport_group_manager: 0x1a0, 1;
        /// The function manages a group of functions.
        vhca_group_manager: 0x1a1, 1;
        /// InfiniBand virtualisation: ports have contexts of their own.
        ib_virt: 0x1a2, 1;
        /// Ethernet virtualisation.
        eth_virt: 0x1a3, 1;
        /// Queue events of a virtual port are counted.
        vnic_env_queue_counters: 0x1a4, 1;
        /// Enhanced transmission selection.
        ets: 0x1a5, 1;
        /// The NIC has flow tables.
        nic_flow_table: 0x1a6, 1;
        /// The function manages the embedded switch.
        eswitch_manager: 0x1a7, 1;
        /// There is device memory for data.
        device_memory: 0x1a8, 1;
        /// Register MCAM.
        mcam_reg: 0x1a9, 1;
        /// Register PCAM.
        pcam_reg: 0x1aa, 1;
        /// Acknowledge delay of the device: 4.096 µs << value.
        local_ca_ack_delay: 0x1ab, 5;
        /// Events on cable modules.
        port_module_event: 0x1b0, 1;
        /// Queue counters count errors.
        enhanced_error_q_counters: 0x1b1, 1;
        /// Port checks.
        ports_check: 0x1b2, 1;
        /// Link layer: [`PortType`](super::PortType).
        port_type: 0x1b6, 2;
        /// Number of ports.
        num_ports: 0x1b8, 8;
        /// Pulse per second signals.
        pps: 0x1c1, 1;
        /// log2 of the longest message in bytes.
        log_max_msg: 0x1c3, 5;
        /// Number of traffic classes.
        max_tc: 0x1cc, 4;
        /// Events on temperature.
        temp_warn_event: 0x1d0, 1;
        /// Data centre bridging exchange runs in firmware.
        dcbx: 0x1d1, 1;
        /// Events of the general kind.
        general_notification_event: 0x1d2, 1;
        /// There is an FPGA.
        fpga: 0x1d5, 1;
        /// Wake on a magic packet.
        wol_g: 0x1da, 1;
        /// Static rates on offer, a bit for each.
        stat_rate_support: 0x1e0, 16;
        /// Highest CQE version: 1 gives user indices in CQEs.
        cqe_version: 0x1fc, 4;
        /// Address vectors of datagrams may be short.
        compact_address_vector: 0x200, 1;
        /// Striding receive queues.
        striding_rq: 0x201, 1;
        /// IP over InfiniBand, enhanced.
        ipoib_enhanced_offloads: 0x203, 1;
        /// IP over InfiniBand, basic.
        ipoib_basic_offloads: 0x204, 1;
        /// A UMR cannot change the page size of a key.
        umr_modify_entity_size_disabled: 0x207, 1;
        /// A UMR cannot change the atomic right of a key.
        umr_modify_atomic_disabled: 0x208, 1;
        /// A UMR cannot make indirect keys.
        umr_indirect_mkey_disabled: 0x209, 1;
        /// Fence that a UMR needs: 0 strong, 1 small, 2 none.
        umr_fence: 0x20a, 2;
        /// Small read answers of a dynamically connected initiator may lie in CQEs.
        dc_req_scat_data_cqe: 0x20c, 1;
        /// Queues may be drained on a signature error.
        drain_sigerr: 0x20f, 1;
        /// Signatures of commands: 0 off, 1 initial state, 3 on.
        cmdif_checksum: 0x210, 2;
        /// Signature errors give CQEs.
        sigerr_cqe: 0x212, 1;
        /// Work queue entries may carry signatures.
        wq_signature: 0x214, 1;
        /// Small receives and read answers may lie in CQEs.
        sctr_data_cqe: 0x215, 1;
        /// PCIe processing hints.
        tph: 0x218, 1;
        /// Dynamically connected transport.
        dct: 0x21a, 1;
        /// There is a page of quality of service capabilities.
        qos: 0x21b, 1;
        /// There is a page of Ethernet capabilities.
        eth_net_offloads: 0x21c, 1;
        /// RoCE; there is a page of RoCE capabilities.
        roce: 0x21d, 1;
        /// Atomics; there is a page of atomic capabilities.
        atomic: 0x21e, 1;
        /// CQs may ignore overruns.
        cq_oi: 0x220, 1;
        /// CQs may be resized.
        cq_resize: 0x221, 1;
        /// CQs may moderate events.
        cq_moderation: 0x222, 1;
        /// The moderation mode of a CQ may be changed.
        cq_period_mode_modify: 0x223, 1;
        /// Completions may be invalidated.
        cq_invalidate: 0x224, 1;
        /// A CQ may be moved to another EQ.
        cq_eq_remap: 0x226, 1;
        /// On-demand paging; there is a page of its capabilities.
        pg: 0x227, 1;
        /// Multicast loopback may be blocked.
        block_lb_mc: 0x228, 1;
        /// A solicited completion may end moderation.
        scqe_break_moderation: 0x22a, 1;
        /// The moderation timer may start at the last completion.
        cq_period_start_from_cqe: 0x22b, 1;
        /// Cross-channel work requests.
        cd: 0x22c, 1;
        /// Automatic path migration.
        apm: 0x22e, 1;
        /// Vector calculations.
        vector_calc: 0x22f, 1;
        /// A UMR may use the reserved lkey.
        umr_ptr_rlky: 0x230, 1;
        /// Mixed inline and gather entries.
        imaicl: 0x231, 1;
        /// Packet-based credits of a QP.
        qp_packet_based: 0x232, 1;
        /// Violations of Q_Keys are counted.
        qkv: 0x236, 1;
        /// Violations of P_Keys are counted.
        pkv: 0x237, 1;
        /// A datagram QP may send under another number.
        set_deth_sqpn: 0x238, 1;
        /// Extended reliable connections.
        xrc: 0x23c, 1;
        /// Unreliable datagrams.
        ud: 0x23d, 1;
        /// Unreliable connections.
        uc: 0x23e, 1;
        /// Reliable connections.
        rc: 0x23f, 1;
        /// UAR pages of 4 KiB whatever the host's page size is.
        uar_4k: 0x240, 1;
        /// Loopback QPs work while RoCE is off.
        fl_rc_qp_when_roce_disabled: 0x248, 1;
        /// log2 of the size of the UAR area in MiB.
        uar_sz: 0x24a, 6;
        /// There is a page of port selection capabilities.
        port_selection_cap: 0x250, 1;
        /// User memory objects may be made without a user context.
        umem_uid_0: 0x252, 1;
        /// log2 of the smallest page in bytes of rings and keys.
        log_pg_sz: 0x258, 8;
        /// BlueFlame: a work request may be written to the UAR.
        bf: 0x260, 1;
        /// SET_DRIVER_VERSION.
        driver_version: 0x261, 1;
        /// Short packets are padded.
        pad_tx_eth_packet: 0x262, 1;
        /// Memory keys may be made with a chosen index.
        mkey_by_name: 0x266, 1;
        /// log2 of the size of a BlueFlame register in bytes; half of it is one buffer.
        log_bf_reg_size: 0x26b, 5;
        /// The last error of a QP may be read.
        qp_error_syndrome: 0x273, 1;
        /// Bonding of dynamically connected targets.
        lag_dct: 0x276, 2;
        /// Port affinity of a bond.
        lag_tx_port_affinity: 0x278, 1;
        /// The function may be the master of a bond.
        lag_master: 0x27b, 1;
        /// Ports of a bond.
        num_lag_ports: 0x27c, 4;
        /// Largest send work queue entry in bytes.
        max_wqe_sz_sq: 0x290, 16;
        /// Largest receive work queue entry in bytes.
        max_wqe_sz_rq: 0x2b0, 16;
        /// Most flow counters, upper 16 bits.
        max_flow_counter_31_16: 0x2c0, 16;
        /// Largest send work queue entry in bytes of a dynamically connected initiator.
        max_wqe_sz_sq_dc: 0x2d0, 16;
        /// Most QPs of a multicast group.
        max_qp_mcg: 0x2e7, 25;
        /// log2 of the most multicast groups.
        log_max_mcg: 0x318, 8;
        /// log2 of the most transport domains.
        log_max_transport_domain: 0x323, 5;
        /// Memory keys may allow relaxed ordering of reads whatever PCIe has enabled.
        relaxed_ordering_read: 0x32a, 1;
        /// log2 of the most protection domains.
        log_max_pd: 0x32b, 5;
        /// log2 of the most XRC domains.
        log_max_xrcd: 0x33b, 5;
        /// Most flow counters, lower 16 bits.
        max_flow_counter_15_0: 0x350, 16;
        /// TISes may be changed.
        modify_tis: 0x360, 1;
        /// log2 of the most receive queues.
        log_max_rq: 0x363, 5;
        /// log2 of the most send queues.
        log_max_sq: 0x36b, 5;
        /// log2 of the most TIRs.
        log_max_tir: 0x373, 5;
        /// log2 of the most TISes.
        log_max_tis: 0x37b, 5;
        /// Cyclic receive queues with entries of one segment.
        basic_cyclic_rcv_wqe: 0x380, 1;
        /// log2 of the most receive memory pools.
        log_max_rmp: 0x383, 5;
        /// log2 of the most receive queue tables.
        log_max_rqt: 0x38b, 5;
        /// log2 of the most entries of a receive queue table.
        log_max_rqt_size: 0x393, 5;
        /// log2 of the most TISes of a send queue.
        log_max_tis_per_sq: 0x39b, 5;
        /// Software may turn RoCE on and off.
        roce_rw_supported: 0x3a1, 1;
        /// log2 of the largest stride of a receive queue in bytes.
        log_max_stride_sz_rq: 0x3a3, 5;
        /// log2 of the smallest stride of a receive queue in bytes.
        log_min_stride_sz_rq: 0x3ab, 5;
        /// log2 of the largest stride of a send queue in bytes.
        log_max_stride_sz_sq: 0x3b3, 5;
        /// log2 of the smallest stride of a send queue in bytes.
        log_min_stride_sz_sq: 0x3bb, 5;
        /// log2 of the most entries of a work queue.
        log_max_wq_sz: 0x3db, 5;
        /// Events on changes of a NIC vport context.
        nic_vport_change_event: 0x3e0, 1;
        /// Unicast loopback may be disabled.
        disable_local_lb_uc: 0x3e1, 1;
        /// Multicast loopback may be disabled.
        disable_local_lb_mc: 0x3e2, 1;
        /// log2 of the longest VLAN list.
        log_max_vlan_list: 0x3eb, 5;
        /// log2 of the longest multicast list.
        log_max_current_mc_list: 0x3f3, 5;
        /// log2 of the longest unicast list.
        log_max_current_uc_list: 0x3fb, 5;
        /// General objects on offer: bit n stands for type n.
        general_obj_types: 0x400, 64;
        /// Time stamps of send queues: 0 free running, 1 real time, 2 both.
        sq_ts_format: 0x440, 2;
        /// Time stamps of receive queues: 0 free running, 1 real time, 2 both.
        rq_ts_format: 0x442, 2;
        /// log2 of the most user contexts.
        log_max_uctx: 0x463, 5;
        /// There is a page of encryption capabilities.
        crypto: 0x469, 1;
        /// log2 of the most user memory objects.
        log_max_umem: 0x46b, 5;
        /// Most EQs of the function; 0 if only `log_max_eq` says.
        max_num_eqs: 0x470, 16;
        /// log2 of the size of the L2 table.
        log_max_l2_table: 0x483, 5;
        /// log2 of the size of a UAR page in units of 4 KiB.
        log_uar_page_sz: 0x490, 16;
        /// Frequency of the free running counter in MHz.
        device_frequency_mhz: 0x4c0, 32;
        /// Frequency of the free running counter in kHz; 0 if not stated.
        device_frequency_khz: 0x4e0, 32;
        /// UARs in a page.
        num_of_uars_per_page: 0x520, 32;
        /// log2 of the largest atomic of a QP in bytes.
        log_max_atomic_size_qp: 0x580, 8;
        /// log2 of the largest atomic of dynamically connected transport in bytes.
        log_max_atomic_size_dc: 0x598, 8;
        /// Enhanced layout of compressed CQEs.
        enhanced_cqe_compression: 0x5b0, 1;
        /// Mini CQEs may carry the header tag.
        mini_cqe_resp_l3_l4_tag: 0x5b9, 1;
        /// Mini CQEs may carry the flow tag.
        mini_cqe_resp_flow_tag: 0x5ba, 1;
        /// Mini CQEs may carry checksum and stride index.
        mini_cqe_resp_stride_index: 0x5bc, 1;
        /// 128-byte CQEs may carry data on every queue.
        cqe_128_always: 0x5bd, 1;
        /// 128-byte CQEs may be compressed.
        cqe_compression_128: 0x5be, 1;
        /// CQEs may be compressed.
        cqe_compression: 0x5bf, 1;
        /// Longest time in microseconds that a compressed session stays open.
        cqe_compression_timeout: 0x5c0, 16;
        /// Most completions of a compressed session.
        cqe_compression_max_num: 0x5d0, 16;
        /// log2 of the longest message of offloaded tag matching, in units of 4 KiB.
        log_max_tm_offloaded_op_size: 0x5ec, 4;
        /// Tag matching.
        tag_matching: 0x5f0, 1;
        /// Rendezvous offload on reliable connections.
        rndv_offload_rc: 0x5f1, 1;
        /// log2 of the longest tag matching list.
        log_tag_matching_list_sz: 0x5f3, 5;
        /// log2 of the most extended receive queues.
        log_max_xrq: 0x5fb, 5;
        /// Ports of a multi-port function; 0 for a plain one.
        num_vhca_ports: 0x610, 8;
        /// INIT_HCA takes an owner number.
        sw_owner_id: 0x61e, 1;
        /// Kinds of user contexts on offer.
        uctx_cap: 0x6a0, 32;
    }
}
