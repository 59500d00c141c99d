//! Bit masks of the verbs, with the numbers of `infiniband/verbs.h`.
//!
//! Build them from numbers with `from_bits_retain`: a bit without a name is kept, so that the call it is given to can
//! refuse it with the error number of its man page.

use bitflags::bitflags;

bitflags! {
    /// What a memory region or a queue pair allows (`enum ibv_access_flags`; `ibv_reg_mr(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The device may write for local requests. Local read access is always there.
        const LOCAL_WRITE = 1 << 0;
        /// Remote peers may write. A memory region needs `LOCAL_WRITE` too.
        const REMOTE_WRITE = 1 << 1;
        /// Remote peers may read.
        const REMOTE_READ = 1 << 2;
        /// Remote peers may do atomics. A memory region needs `LOCAL_WRITE` too.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

bitflags! {
    /// Fields that completions of a CQ shall carry (`enum ibv_create_cq_wc_flags`; `ibv_create_cq_ex(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcFlags: u64 {
        /// Length of the payload.
        const BYTE_LEN = 1 << 0;
        /// Immediate data, or the invalidated key.
        const IMM = 1 << 1;
        /// Number of the local queue pair.
        const QP_NUM = 1 << 2;
        /// Number of the sender's queue pair.
        const SRC_QP = 1 << 3;
        /// Source LID.
        const SLID = 1 << 4;
        /// Service level.
        const SL = 1 << 5;
        /// Path bits of the destination LID.
        const DLID_PATH_BITS = 1 << 6;
        /// Time stamp in device clock ticks.
        const COMPLETION_TIMESTAMP = 1 << 7;
        /// Customer VLAN tag.
        const CVLAN = 1 << 8;
        /// Flow tag.
        const FLOW_TAG = 1 << 9;
        /// Tag matching information.
        const TM_INFO = 1 << 10;
        /// Time stamp in nanoseconds of wall-clock time; on devices with real-time stamps only.
        const COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
        /// What `ibv_create_cq` asks for: bits 0 to 6.
        const STANDARD = 0x7f;
    }
}

bitflags! {
    /// What is true of one completion (`enum ibv_wc_flags`; `ibv_poll_cq(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WcResultFlags: u32 {
        /// A global routing header was present.
        const GRH = 1 << 0;
        /// Immediate data is valid.
        const WITH_IMM = 1 << 1;
        /// The checksums over the IPv4 packet are right.
        const IP_CSUM_OK = 1 << 2;
        /// The invalidated key is valid.
        const WITH_INV = 1 << 3;
        /// The tag list is to be synchronised.
        const TM_SYNC_REQ = 1 << 4;
        /// A message matched a tag.
        const TM_MATCH = 1 << 5;
        /// The data of a tagged message is in place.
        const TM_DATA_VALID = 1 << 6;
    }
}

bitflags! {
    /// Which fields of [`CqInitAttrEx`](crate::CqInitAttrEx) are valid (`enum ibv_cq_init_attr_mask`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqInitAttrMask: u32 {
        /// `flags` is valid.
        const FLAGS = 1 << 0;
        /// `parent_domain` is valid.
        const PD = 1 << 1;
    }
}

bitflags! {
    /// How a CQ behaves (`enum ibv_create_cq_attr_flags`; `ibv_create_cq_ex(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CreateCqFlags: u32 {
        /// One thread polls. Here the type says so anyway: polling takes the CQ exclusively.
        const SINGLE_THREADED = 1 << 0;
        /// An overrun overwrites entries instead of moving the CQ to the error state.
        const IGNORE_OVERRUN = 1 << 1;
    }
}

bitflags! {
    /// Which fields of [`ModifyCqAttr`](crate::ModifyCqAttr) are valid (`enum ibv_cq_attr_mask`; `ibv_modify_cq(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqAttrMask: u32 {
        /// `moderate` is valid.
        const MODERATE = 1 << 0;
    }
}

bitflags! {
    /// Which fields of [`QpAttr`](crate::QpAttr) a call sets or asks for (`enum ibv_qp_attr_mask`; `ibv_modify_qp(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// `qp_state`.
        const STATE = 1 << 0;
        /// `cur_qp_state`: the state the caller takes the queue pair to be in.
        const CUR_STATE = 1 << 1;
        /// Send an event when the send queue has drained.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`.
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `port_num`.
        const PORT = 1 << 5;
        /// The Q_Key, of datagram queue pairs.
        const QKEY = 1 << 6;
        /// `ah_attr`.
        const AV = 1 << 7;
        /// `path_mtu`.
        const PATH_MTU = 1 << 8;
        /// `timeout`.
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// The alternate path.
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// State of path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`.
        const CAP = 1 << 19;
        /// `dest_qp_num`.
        const DEST_QPN = 1 << 20;
        /// Limit of the sending rate.
        const RATE_LIMIT = 1 << 25;
    }
}

bitflags! {
    /// How a send request is carried out (`enum ibv_send_flags`; `ibv_post_send(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SendFlags: u32 {
        /// Starts only after earlier RDMA reads and atomics have ended.
        const FENCE = 1 << 0;
        /// Its completion is reported.
        const SIGNALED = 1 << 1;
        /// The receiver's completion counts as solicited.
        const SOLICITED = 1 << 2;
        /// The payload is copied into the request while it is posted.
        const INLINE = 1 << 3;
    }
}

bitflags! {
    /// Which attributes of a shared receive queue to change (`enum ibv_srq_attr_mask`; `ibv_modify_srq(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SrqAttrMask: u32 {
        /// `max_wr`: an mlx5 device cannot change it.
        const MAX_WR = 1;
        /// `srq_limit`.
        const LIMIT = 1 << 1;
    }
}
