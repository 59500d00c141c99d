//! Which fields of a queue pair's context each transition takes, by transport service; what else a context carries is ignored.
//!
//! The optional ones are those that Linux's driver names in `opt_param_mask`.

use crate::objects::Service;

/// Ranges of bits of a context: first bit, bits.
pub(super) type Fields = &'static [(usize, usize)];

/// A bit of `opt_param_mask`, with what it covers.
pub(super) type Optional = (u32, Fields);

/// What a transition takes.
pub(super) struct Taken {
    /// Without being asked.
    pub(super) always: Fields,
    /// When `opt_param_mask` says so; a bit that is not here is refused.
    pub(super) named: &'static [Optional],
}

const RRE: Optional = (1 << 1, &[(0x92 * 8, 1)]);
/// With `atomic_mode`.
const RAE: Optional = (1 << 2, &[(0x92 * 8 + 2, 1), (0x91 * 8 + 4, 4)]);
const RWE: Optional = (1 << 3, &[(0x92 * 8 + 1, 1)]);
const PKEY: Optional = (1 << 4, &[(0x1a * 8, 16)]);
const Q_KEY: Optional = (1 << 5, &[(0xa8 * 8, 32)]);
const RNR_TIMEOUT: Optional = (1 << 6, &[(0x94 * 8 + 3, 5)]);
const PM_STATE: Optional = (1 << 10, &[(2 * 8 + 3, 2)]);
const LAG: Optional = (1 << 15, &[(4, 4)]);
const COUNTER_SET: Optional = (1 << 25, &[(0xc * 8, 8)]);

/// RST2INIT: pm_state, pkey_index, vhca_port_num; of connections the peer's rights, of datagrams the q_key.
pub(super) fn init(service: Service) -> Taken {
    match service {
        Service::Rc => Taken {
            always: &[(2 * 8 + 3, 2), (0x1a * 8, 16), (0x3d * 8, 8), (0x91 * 8 + 4, 4), (0x92 * 8, 3)],
            named: &[RRE, RAE, RWE, PKEY, LAG, COUNTER_SET],
        },
        Service::Uc => Taken {
            always: &[(2 * 8 + 3, 2), (0x1a * 8, 16), (0x3d * 8, 8), (0x92 * 8 + 1, 1)],
            named: &[RWE, PKEY, LAG, COUNTER_SET],
        },
        Service::Ud => Taken {
            always: &[(2 * 8 + 3, 2), (0x1a * 8, 16), (0x3d * 8, 8), (0xa8 * 8, 32)],
            named: &[PKEY, Q_KEY, LAG, COUNTER_SET],
        },
    }
}

/// INIT2RTR: mtu and log_msg_max; of connections remote_qpn, the primary path but for what was told before (partition key and
/// port), next_rcv_psn; of reliable ones log_rra_max and min_rnr_nak as well.
pub(super) fn rtr(service: Service) -> Taken {
    match service {
        Service::Rc => Taken {
            always: &[
                (0x8 * 8, 8),
                (0x15 * 8, 24),
                (0x18 * 8, 16),
                (0x1c * 8, 33 * 8),
                (0x3e * 8, 6 * 8),
                (0x91 * 8, 3),
                (0x94 * 8 + 3, 5),
                (0x95 * 8, 24),
            ],
            named: &[RRE, RAE, RWE, PKEY, LAG, RNR_TIMEOUT],
        },
        Service::Uc => Taken {
            always: &[
                (0x8 * 8, 8),
                (0x15 * 8, 24),
                (0x18 * 8, 16),
                (0x1c * 8, 33 * 8),
                (0x3e * 8, 6 * 8),
                (0x95 * 8, 24),
            ],
            named: &[RWE, PKEY, LAG],
        },
        Service::Ud => Taken { always: &[(0x8 * 8, 8)], named: &[PKEY, Q_KEY, LAG] },
    }
}

/// RTR2RTS: next_send_psn; of reliable connections log_ack_req_freq, log_sra_max, retry_count, rnr_retry, ack_timeout as well.
pub(super) fn rts(service: Service) -> Taken {
    match service {
        Service::Rc => Taken {
            always: &[(0x20 * 8, 5), (0x70 * 8, 4), (0x71 * 8, 3), (0x71 * 8 + 5, 3), (0x72 * 8, 3), (0x79 * 8, 24)],
            named: &[RRE, RAE, RWE, RNR_TIMEOUT, PM_STATE, LAG],
        },
        Service::Uc => Taken { always: &[(0x79 * 8, 24)], named: &[RWE, PM_STATE, LAG] },
        Service::Ud => Taken { always: &[(0x79 * 8, 24)], named: &[Q_KEY, LAG] },
    }
}
