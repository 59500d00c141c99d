//! Error entries: layouts, syndromes, what they mean.

crate::prm! {
    /// An entry that reports a failed work request (PRM `err_cqe`).
    pub struct ErrCqe("err_cqe", 64) {
        /// Ethernet, striding receive queue: index of the receive work request.
        eth_wqe_id: 0x010, 16;
        /// Striding receive queue: index of the stride.
        ib_stride_index: 0x0a0, 16;
        /// Shared receive queue number (CQE version 0) or user index of the queue (version 1), low 24 bits.
        srqn: 0x100, 32;
        /// Bytes transferred before the error.
        byte_cnt: 0x160, 32;
        /// The hardware's own code, which support asks for.
        hw_err_synd: 0x1a0, 8;
        /// Which unit set it, in the upper four bits.
        hw_synd_type: 0x1a8, 8;
        /// The vendor's finer code; verbs' `vendor_err`.
        vendor_err_synd: 0x1b0, 8;
        /// Why the work request failed, see [`CqeSyndrome`].
        syndrome: 0x1b8, 8;
        /// Opcode of the send work request (31:24, requester only), queue number (23:0).
        s_wqe_opcode_qpn: 0x1c0, 32;
        /// Counter of the work request, not masked to the queue's size.
        wqe_counter: 0x1e0, 16;
        /// Checksum of the entry.
        signature: 0x1f0, 8;
        /// Opcode, format, solicited and owner bit, see [`OpOwn`](super::OpOwn).
        op_own: 0x1f8, 8;
    }
}

crate::prm! {
    /// An entry that reports a failed data-integrity check (PRM `sig_err_cqe`).
    pub struct SigErrCqe("sig_err_cqe", 64) {
        /// Guard and application tag that were expected.
        expected_trans_sig: 0x080, 32;
        /// Guard and application tag that were found.
        actual_trans_sig: 0x0a0, 32;
        /// Reference tag that was expected.
        expected_ref_tag: 0x0c0, 32;
        /// Reference tag that was found.
        actual_ref_tag: 0x0e0, 32;
        /// Which of them differ: bit 13 guard, bit 12 application tag, bit 11 reference tag.
        syndrome: 0x100, 16;
        /// Low three bits: 0 block signature, 1 transaction signature.
        sig_type: 0x110, 8;
        /// Low three bits: 0 on the wire, 1 in memory.
        domain: 0x118, 8;
        /// The mkey: its index in 31:8.
        mkey: 0x120, 32;
        /// Offset of the error in the transfer, in bytes.
        err_offset: 0x140, 64;
        /// Queue number, low 24 bits.
        qpn: 0x1c0, 32;
        /// Checksum of the entry.
        signature: 0x1f0, 8;
        /// Opcode, format, solicited and owner bit, see [`OpOwn`](super::OpOwn).
        op_own: 0x1f8, 8;
    }
}

crate::prm_values! {
    /// Why a work request failed (constants `MLX5_CQE_SYNDROME_*`).
    pub struct CqeSyndrome(u8) {
        /// The message did not fit the buffers of the work request.
        LOCAL_LENGTH_ERR = 0x01;
        /// The queue pair could not carry out the work request as it is written.
        LOCAL_QP_OP_ERR = 0x02;
        /// The memory key of a local buffer does not allow the access.
        LOCAL_PROT_ERR = 0x04;
        /// The work request was outstanding when the queue went to the error state; it was not carried out.
        WR_FLUSH_ERR = 0x05;
        /// A memory window was not bound, or a user-mode registration failed.
        MW_BIND_ERR = 0x06;
        /// The responder answered with something that does not belong to the request.
        BAD_RESP_ERR = 0x10;
        /// The responder's own buffer did not allow the access.
        LOCAL_ACCESS_ERR = 0x11;
        /// The responder rejected the request as not valid.
        REMOTE_INVAL_REQ_ERR = 0x12;
        /// The responder's memory key does not allow the access.
        REMOTE_ACCESS_ERR = 0x13;
        /// The responder failed while it carried the request out.
        REMOTE_OP_ERR = 0x14;
        /// No acknowledge came, retries included.
        TRANSPORT_RETRY_EXC_ERR = 0x15;
        /// The responder had no receive work request ready, retries included.
        RNR_RETRY_EXC_ERR = 0x16;
        /// The responder gave the request up.
        REMOTE_ABORTED_ERR = 0x22;
    }
}

impl CqeSyndrome {
    /// The verbs completion status (`ibv_wc_status`); 21, general error, for a syndrome without one of its own.
    pub const fn wc_status(self) -> u32 {
        match self {
            Self::LOCAL_LENGTH_ERR => 1,
            Self::LOCAL_QP_OP_ERR => 2,
            Self::LOCAL_PROT_ERR => 4,
            Self::WR_FLUSH_ERR => 5,
            Self::MW_BIND_ERR => 6,
            Self::BAD_RESP_ERR => 7,
            Self::LOCAL_ACCESS_ERR => 8,
            Self::REMOTE_INVAL_REQ_ERR => 9,
            Self::REMOTE_ACCESS_ERR => 10,
            Self::REMOTE_OP_ERR => 11,
            Self::TRANSPORT_RETRY_EXC_ERR => 12,
            Self::RNR_RETRY_EXC_ERR => 13,
            Self::REMOTE_ABORTED_ERR => 16,
            _ => 21,
        }
    }

    /// What it means, in a sentence.
    pub fn meaning(self) -> &'static str {
        let known = Self::VALUES.iter().find(|(_, number, _)| *number == u64::from(self.0));
        known.map_or("A syndrome that has no public name.", |(_, _, doc)| doc.trim())
    }

    /// What usually causes it, in a sentence.
    pub const fn usual_cause(self) -> &'static str {
        match self {
            Self::LOCAL_LENGTH_ERR => {
                "The peer sent more than the posted receive buffers hold, or the scatter list or a datagram is longer than the queue allows."
            }
            Self::LOCAL_QP_OP_ERR => {
                "A malformed work request: an opcode the queue pair does not support, a wrong segment count, or a registration it may not do."
            }
            Self::LOCAL_PROT_ERR => {
                "A wrong lkey, a range outside the region, a region of another protection domain, without local write, or deregistered too early."
            }
            Self::WR_FLUSH_ERR => {
                "An earlier error of the same queue pair, or a move to the error state: look for the first other error."
            }
            Self::MW_BIND_ERR => {
                "A key, range or access right of the registration is not allowed for the queue pair or the region."
            }
            Self::BAD_RESP_ERR => {
                "The two ends disagree on packet numbers or queue pair type, or an old peer still sends to a reused queue pair."
            }
            Self::LOCAL_ACCESS_ERR => {
                "A receive buffer of the responder is not writable, or was deregistered while it was posted."
            }
            Self::REMOTE_INVAL_REQ_ERR => {
                "The responder's queue pair does not allow the operation, has too few responder resources, or its receive buffer is too small."
            }
            Self::REMOTE_ACCESS_ERR => {
                "A wrong or stale rkey, an address outside the peer's region, or a region or queue pair without that remote access right."
            }
            Self::REMOTE_OP_ERR => {
                "The peer's receive work request is malformed or its buffer not accessible; its own completion says more."
            }
            Self::TRANSPORT_RETRY_EXC_ERR => {
                "The peer's queue pair is not ready or gone, the address, number or MTU is wrong, or packets are lost on the way."
            }
            Self::RNR_RETRY_EXC_ERR => {
                "The peer posts receives too slowly or not at all, and rnr_retry is not 7 (without limit)."
            }
            Self::REMOTE_ABORTED_ERR => {
                "The peer's queue was reset or closed in the middle, or a page fault of its memory was not resolved."
            }
            _ => "Unknown: keep vendor_err, hw_err_synd and the whole entry, the vendor's support can read them.",
        }
    }
}
