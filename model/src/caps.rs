//! Capability pages: what the function can do at most, and what is in force.

use crate::bytes::{bits, put_bits};
use crate::config::CapConfig;
use crate::hca::ROCE_ADDRESSES;

/// Bytes of a capability page.
pub(crate) const CAP_BYTES: usize = 4096;
/// Capability types.
pub(crate) const TYPE_GENERAL: u16 = 0;
pub(crate) const TYPE_ATOMIC: u16 = 3;
pub(crate) const TYPE_ROCE: u16 = 4;
/// The byte of the atomic page whose two top bits are `atomic_req_8B_endianness_mode`.
const ATOMIC_MODE_AT: usize = 0x8;
/// `fl_rc_qp_when_roce_enabled` of the RoCE page.
const FL_WHEN_ENABLED: usize = 6;
/// `qp_ts_format` of the RoCE page.
const QP_TS_FORMAT: usize = 0x3 * 8 + 6;

/// One capability of the general page: byte, bit in it, width; current and maximum value.
struct Cap {
    name: &'static str,
    bit: usize,
    width: usize,
    current: u64,
    max: u64,
}

/// The capability pages.
pub(crate) struct Caps {
    general: Vec<Cap>,
    /// The atomic page in force; its maximum differs in the endianness mode alone.
    atomic: Option<Vec<u8>>,
    roce: Option<Vec<u8>>,
}

/// Why SET_HCA_CAP was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapError {
    /// A value is above its maximum.
    Maximum(&'static str),
    /// A bit is set that no capability of this function has.
    Unknown(usize),
    /// A value that is neither off nor on.
    Checksum,
}

impl Caps {
    pub(crate) fn new(config: &CapConfig) -> Self {
        let fixed = FIXED.iter().chain(&SIZES).map(|(name, byte, bit, width, value)| Cap {
            name,
            bit: byte * 8 + bit,
            width: *width,
            current: *value,
            max: *value,
        });
        let mut caps = Self {
            general: fixed.collect(),
            atomic: config.atomic.then(atomic_page),
            roce: config.roce.then(|| roce_page(config)),
        };
        for (name, byte, bit, width, value) in configured(config).into_iter().chain(completions(config)) {
            caps.general.push(Cap { name, bit: byte * 8 + bit, width, current: value, max: value });
        }
        // Firmware says with 1 that it can check signatures; a driver sets 0 (off) or 3 (on).
        caps.general.push(Cap { name: "cmdif_checksum", bit: 0x42 * 8, width: 2, current: 1, max: 3 });
        // 128 partition keys at most (code 0); a driver may ask for fewer codes.
        caps.general.push(Cap { name: "pkey_table_size", bit: 0x32 * 8, width: 16, current: 0, max: 5 });
        caps
    }

    /// The value in force of a general capability; 0 for one that the function does not have.
    pub(crate) fn current(&self, name: &str) -> u64 {
        self.general.iter().find(|cap| cap.name == name).map_or(0, |cap| cap.current)
    }

    /// The page of a type, current or maximum; `None` when the type does not exist here.
    pub(crate) fn page(&self, kind: u16, current: bool) -> Option<Vec<u8>> {
        match kind {
            TYPE_GENERAL => {
                let mut page = vec![0; CAP_BYTES];
                for cap in &self.general {
                    put_bits(&mut page, cap.bit, cap.width, if current { cap.current } else { cap.max });
                }
                Some(page)
            }
            TYPE_ATOMIC => {
                let mut page = self.atomic.clone()?;
                if !current {
                    put_bits(&mut page, ATOMIC_MODE_AT * 8, 2, 1);
                }
                Some(page)
            }
            TYPE_ROCE => self.roce.clone(),
            _ => None,
        }
    }

    /// What a page sent by SET_HCA_CAP would change, in words: `log_max_qp:17>18`.
    pub(crate) fn changes(&self, kind: u16, page: &[u8]) -> Vec<String> {
        if kind != TYPE_GENERAL {
            let same = self.page(kind, true).is_some_and(|now| now == page);
            return if same { Vec::new() } else { vec!["other".into()] };
        }
        let new = |cap: &Cap| bits(page, cap.bit, cap.width);
        let changed = self.general.iter().filter(|cap| new(cap) != cap.current);
        changed.map(|cap| format!("{}:{}>{}", cap.name, cap.current, new(cap))).collect()
    }

    /// Whether the results of atomics are scattered in the host's byte order; big-endian as they come off the wire if not.
    pub(crate) fn atomic_results_in_host_order(&self) -> bool {
        self.atomic.as_ref().is_some_and(|page| bits(page, ATOMIC_MODE_AT * 8, 2) == 1)
    }

    /// Whether queue pairs may have their completions stamped in real time: RoCE's page says so, where there is one.
    pub(crate) fn real_time_qps(&self) -> bool {
        let page = self.roce.as_ref().map(|page| bits(page, QP_TS_FORMAT, 2));
        page.unwrap_or_else(|| self.current("sq_ts_format")) != 0
    }

    /// Whether reliable connections may be forced to loop back while RoCE is on, or off.
    pub(crate) fn force_loopback(&self, roce_on: bool) -> bool {
        if !roce_on {
            return self.current("fl_rc_qp_when_roce_disabled") == 1;
        }
        self.roce.as_ref().is_some_and(|page| bits(page, FL_WHEN_ENABLED, 1) == 1)
    }

    /// Puts an atomic page in force: only the endianness mode can be changed, and a driver may send the rest as zeros, as
    /// Linux's does.
    pub(crate) fn set_atomic(&mut self, page: &[u8]) -> Result<(), CapError> {
        let Some(now) = self.atomic.as_mut() else { return Err(CapError::Unknown(0)) };
        let mode = bits(page, ATOMIC_MODE_AT * 8, 2);
        if mode > 1 {
            return Err(CapError::Maximum("atomic_req_8B_endianness_mode"));
        }
        let set = |at: usize, byte: u8| if at == ATOMIC_MODE_AT { byte & 0x3f } else { byte };
        let strange = |(at, byte): (usize, &u8)| !matches!(set(at, *byte), 0) && set(at, *byte) != set(at, now[at]);
        if let Some(at) = page.iter().enumerate().position(strange) {
            return Err(CapError::Unknown(at));
        }
        put_bits(now, ATOMIC_MODE_AT * 8, 2, mode);
        Ok(())
    }

    /// Puts a general page in force.
    pub(crate) fn set_general(&mut self, page: &[u8]) -> Result<(), CapError> {
        let mut rest = page.to_vec();
        for cap in &self.general {
            let value = bits(page, cap.bit, cap.width);
            if value > cap.max {
                return Err(CapError::Maximum(cap.name));
            }
            if cap.name == "cmdif_checksum" && value == 2 {
                return Err(CapError::Checksum);
            }
            put_bits(&mut rest, cap.bit, cap.width, 0);
        }
        if let Some(at) = rest.iter().position(|byte| *byte != 0) {
            return Err(CapError::Unknown(at));
        }
        for cap in &mut self.general {
            cap.current = bits(page, cap.bit, cap.width);
        }
        Ok(())
    }
}

type Value = (&'static str, usize, usize, usize, u64);

/// Yes-or-no capabilities and small codes: name, byte, bit, width, value.
const FIXED: [Value; 9] = [
    ("local_ca_ack_delay", 0x35, 3, 5, 16),
    ("umr_modify_entity_size_disabled", 0x40, 7, 1, 1),
    ("compact_address_vector", 0x40, 0, 1, 1),
    ("uar_4k", 0x48, 0, 1, 1),
    ("num_of_uars_per_page", 0xa4, 0, 32, 1),
    ("log_pg_sz", 0x4b, 0, 8, 12),
    ("imaicl", 0x46, 1, 1, 1),
    ("vhca_id", 0x6, 0, 16, 1),
    ("max_tc", 0x39, 4, 4, 8),
];

/// Sizes: name, byte, bit, width, value.
const SIZES: [Value; 10] = [
    ("max_indirection", 0x20, 0, 8, 4),
    ("log_max_mrw_sz", 0x21, 1, 7, 0x40),
    ("log_max_ra_req_qp", 0x29, 2, 6, 4),
    ("log_max_ra_res_qp", 0x2b, 2, 6, 4),
    ("log_max_msg", 0x38, 3, 5, 30),
    ("max_wqe_sz_sq", 0x52, 0, 16, 1024),
    ("max_wqe_sz_rq", 0x56, 0, 16, 512),
    ("log_max_transport_domain", 0x64, 3, 5, 12),
    ("log_max_current_mc_list", 0x7e, 3, 5, 4),
    ("log_max_current_uc_list", 0x7f, 3, 5, 4),
];

fn configured(config: &CapConfig) -> [Value; 30] {
    // Object numbers have 24 bits.
    let [eq, cq, qp, mkey, pd] = config.log_max.map(|log| u64::from(log.min(24)));
    [
        ("cqe_version", 0x3f, 4, 4, config.cqe_version.into()),
        ("device_frequency_khz", 0x9c, 0, 32, config.device_frequency_khz.into()),
        ("log_max_eq", 0x1f, 4, 4, eq.min(8)),
        ("log_max_cq", 0x1b, 3, 5, cq),
        ("log_max_qp", 0x13, 3, 5, qp),
        ("log_max_mkey", 0x1d, 2, 6, mkey),
        ("log_max_pd", 0x65, 3, 5, pd),
        ("log_max_cq_sz", 0x19, 0, 8, config.log_max_cq_sz.into()),
        ("log_max_qp_sz", 0x11, 0, 8, config.log_max_qp_sz.into()),
        ("log_max_rmp", 0x70, 3, 5, config.log_max_rmp.min(24).into()),
        ("log_max_srq", 0x15, 3, 5, config.log_max_rmp.min(24).into()),
        // Links have 16 bits.
        ("log_max_srq_sz", 0x10, 0, 8, config.log_max_srq_sz.min(16).into()),
        ("log_max_eq_sz", 0x1c, 0, 8, config.log_max_eq_sz.into()),
        ("cq_oi", 0x44, 0, 1, config.cq_oi.into()),
        ("cq_resize", 0x44, 1, 1, config.cq_resize.into()),
        ("cq_moderation", 0x44, 2, 1, config.cq_moderation.into()),
        ("cq_period_mode_modify", 0x44, 3, 1, config.cq_period_mode_modify.into()),
        ("scqe_break_moderation", 0x45, 2, 1, config.scqe_break_moderation.into()),
        ("cq_period_start_from_cqe", 0x45, 3, 1, config.cq_period_start_from_cqe.into()),
        ("port_type", 0x36, 6, 2, config.ethernet.into()),
        ("eth_virt", 0x34, 3, 1, config.ethernet.into()),
        ("ib_virt", 0x34, 2, 1, config.ib_virt.into()),
        ("fl_rc_qp_when_roce_disabled", 0x49, 0, 1, config.fl_rc_qp_when_roce_disabled.into()),
        ("roce", 0x43, 5, 1, config.roce.into()),
        ("atomic", 0x43, 6, 1, config.atomic.into()),
        ("bf", 0x4c, 0, 1, config.bf.into()),
        ("log_bf_reg_size", 0x4d, 3, 5, config.log_bf_reg_size.min(31).into()),
        ("driver_version", 0x4c, 1, 1, config.driver_version.into()),
        ("page_request_disable", 0x0, 6, 1, config.page_request_disable.into()),
        ("num_ports", 0x37, 0, 8, config.num_ports.into()),
    ]
}

/// What completions can be like beyond the plain 64 and 128 bytes.
fn completions(config: &CapConfig) -> [Value; 12] {
    [
        ("sctr_data_cqe", 0x42, 5, 1, config.sctr_data_cqe.into()),
        ("sq_ts_format", 0x88, 0, 2, ts_format(config)),
        ("rq_ts_format", 0x88, 2, 2, ts_format(config)),
        ("enhanced_cqe_compression", 0xb6, 0, 1, config.enhanced_cqe_compression.into()),
        ("mini_cqe_resp_l3_l4_tag", 0xb7, 1, 1, config.mini_cqe_resp_l3_l4_tag.into()),
        ("mini_cqe_resp_flow_tag", 0xb7, 2, 1, config.mini_cqe_resp_flow_tag.into()),
        ("mini_cqe_resp_stride_index", 0xb7, 4, 1, config.mini_cqe_resp_stride_index.into()),
        ("cqe_128_always", 0xb7, 5, 1, config.cqe_128_always.into()),
        ("cqe_compression_128", 0xb7, 6, 1, config.cqe_compression_128.into()),
        ("cqe_compression", 0xb7, 7, 1, config.cqe_compression.into()),
        ("cqe_compression_timeout", 0xb8, 0, 16, config.cqe_compression_timeout.into()),
        ("cqe_compression_max_num", 0xba, 0, 16, config.cqe_compression_max_num.into()),
    ]
}

/// Code of the time stamps that queues may ask for: 0 free running, 2 real time as well.
fn ts_format(config: &CapConfig) -> u64 {
    if config.real_time_ts { 2 } else { 0 }
}

fn atomic_page() -> Vec<u8> {
    let mut page = vec![0; CAP_BYTES];
    put_bits(&mut page, ATOMIC_MODE_AT * 8 + 6, 1, 1); // supported_atomic_req_8B_endianness_mode_1
    put_bits(&mut page, 0x12 * 8, 16, 0x3); // atomic_operations: compare and swap, fetch and add
    put_bits(&mut page, 0x16 * 8, 16, 0x8); // atomic_size_qp: 8 bytes
    page
}

fn roce_page(config: &CapConfig) -> Vec<u8> {
    let mut page = vec![0; CAP_BYTES];
    put_bits(&mut page, 5, 1, config.fl_rc_qp_when_roce_disabled.into());
    put_bits(&mut page, FL_WHEN_ENABLED, 1, config.fl_rc_qp_when_roce_enabled.into());
    put_bits(&mut page, QP_TS_FORMAT, 2, ts_format(config));
    put_bits(&mut page, 0x11 * 8 + 4, 4, 6); // l3_type: IPv4 and IPv6
    put_bits(&mut page, 0x13 * 8, 8, 4); // roce_version: v2
    put_bits(&mut page, 0x16 * 8, 16, 4791); // r_roce_dest_udp_port
    put_bits(&mut page, 0x18 * 8, 16, 0xffff); // r_roce_max_src_udp_port
    put_bits(&mut page, 0x1a * 8, 16, 0xc000); // r_roce_min_src_udp_port
    put_bits(&mut page, 0x1e * 8, 16, ROCE_ADDRESSES as u64); // roce_address_table_size
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_may_be_set_again_and_more_than_the_maximum_may_not() {
        let mut caps = Caps::new(&CapConfig::default());
        let page = caps.page(TYPE_GENERAL, true).unwrap();
        assert_eq!(caps.set_general(&page), Ok(()));
        let mut more = page.clone();
        put_bits(&mut more, 0x13 * 8 + 3, 5, 18);
        assert_eq!(caps.set_general(&more), Err(CapError::Maximum("log_max_qp")));
        let mut stranger = page.clone();
        stranger[0x200] = 1;
        assert_eq!(caps.set_general(&stranger), Err(CapError::Unknown(0x200)));
        let mut fewer = page;
        put_bits(&mut fewer, 0x13 * 8 + 3, 5, 10);
        assert_eq!(caps.set_general(&fewer), Ok(()));
        assert_eq!(caps.current("log_max_qp"), 10);
        assert_eq!(caps.page(TYPE_GENERAL, true).unwrap(), fewer);
    }

    #[test]
    fn the_endianness_mode_of_atomics_can_be_set_and_nothing_else_of_their_page() {
        let mut caps = Caps::new(&CapConfig::default());
        assert!(!caps.atomic_results_in_host_order());
        let mut page = vec![0; CAP_BYTES];
        put_bits(&mut page, 64, 2, 1);
        assert_eq!(caps.set_atomic(&page), Ok(()));
        assert!(caps.atomic_results_in_host_order());
        let current = caps.page(TYPE_ATOMIC, true).unwrap();
        assert_eq!((bits(&current, 64, 2), bits(&current, 144, 16), bits(&current, 176, 16)), (1, 3, 8));
        assert_eq!(caps.set_atomic(&current), Ok(()));
        put_bits(&mut page, 64, 2, 2);
        assert_eq!(caps.set_atomic(&page), Err(CapError::Maximum("atomic_req_8B_endianness_mode")));
        let mut more = current;
        put_bits(&mut more, 144, 16, 7);
        assert_eq!(caps.set_atomic(&more), Err(CapError::Unknown(0x13)));
        let none = Caps::new(&CapConfig { atomic: false, ..CapConfig::default() });
        assert_eq!(none.page(TYPE_ATOMIC, true), None);
    }

    #[test]
    fn no_two_capabilities_share_a_bit() {
        let caps = Caps::new(&CapConfig::default());
        let mut page = vec![0; CAP_BYTES];
        for cap in &caps.general {
            assert_eq!(bits(&page, cap.bit, cap.width), 0, "{}", cap.name);
            put_bits(&mut page, cap.bit, cap.width, u64::MAX);
        }
    }
}
