//! The life of the function: disabled, enabled, initialised; and what belongs to it as a whole.

use crate::caps::Caps;
use crate::config::ModelConfig;
use crate::vport::Vport;

/// How far the function has been brought up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HcaState {
    /// After a reset or DISABLE_HCA.
    #[default]
    Disabled,
    /// ENABLE_HCA was done, INIT_HCA was not, or was undone.
    Enabled,
    /// INIT_HCA was done.
    Initialized,
}

/// The function as a whole.
pub(crate) struct Hca {
    pub(crate) state: HcaState,
    /// Interface step sequence id in force.
    pub(crate) issi: u16,
    pub(crate) caps: Caps,
    pub(crate) vport: Vport,
    /// RoCE addresses as set, 32 bytes each; all zero for none.
    pub(crate) roce_addresses: Vec<[u8; 32]>,
}

/// Entries of the RoCE address table.
pub(crate) const ROCE_ADDRESSES: usize = 16;

impl Hca {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        Self {
            state: HcaState::Disabled,
            issi: 0,
            caps: Caps::new(&config.caps),
            vport: Vport::new(config.mac),
            roce_addresses: vec![[0; 32]; ROCE_ADDRESSES],
        }
    }

    /// `port_type`: the port is InfiniBand, not Ethernet.
    pub(crate) fn is_infiniband(&self) -> bool {
        self.caps.current("port_type") == 0
    }

    /// Whether a queue pair may be told to send to its own port whatever its addresses say (`fl`): an InfiniBand one may, as
    /// RoCE is off there.
    pub(crate) fn may_force_loopback(&self, reliable: bool) -> bool {
        if self.is_infiniband() && !reliable {
            return true;
        }
        reliable && self.caps.force_loopback(self.vport.roce_on())
    }

    /// Whether commands must be signed: SET_HCA_CAP has turned it on.
    pub(crate) fn checksum_on(&self) -> bool {
        self.caps.current("cmdif_checksum") == 3
    }

    /// How the entry of an answer is signed. Seen on a ConnectX-4 Lx: until INIT_HCA as if the device still owned the entry,
    /// also after SET_HCA_CAP has turned checksums off; from then on not at all.
    pub(crate) fn answer_signature(&self) -> AnswerSignature {
        if self.checksum_on() {
            AnswerSignature::Whole
        } else if self.state == HcaState::Initialized {
            AnswerSignature::Drivers
        } else {
            AnswerSignature::WhileOwned
        }
    }
}

/// Which bytes the signature of an answer makes 0xff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerSignature {
    /// The entry as software gets it: Linux's rule for checksums that are on.
    Whole,
    /// The entry with the owner bit still set.
    WhileOwned,
    /// None: the driver's signature stays.
    Drivers,
}
