//! From a function that has been reset to one that takes verbs' commands.
//!
//! The order is Linux's. Each step that the teardown has to undo is noted in [`Steps`](super::teardown::Steps) as soon
//! as the device may have taken it, so a failure anywhere is undone by dropping the [`Control`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mlx5_hw::caps::{AtomicOrder, CapPage, CmdHcaCap};
use mlx5_hw::cmd::{
    AllocUar, CapMode, CapType, EnableHca, InitHca, PagesStage, QueryAdapter, QueryHcaCap, QueryIssi,
    QuerySpecialContexts, SetDriverVersion, SetHcaCap, SetIssi, Status, WriteHostEndianness,
};
use mlx5_hw::eqe::EventType;
use mlx5_hw::init_segment::CMD_INTERFACE_REV;

use super::attr::{Caps, DeviceInfo};
use super::config::DeviceConfig;
use super::control::Control;
use super::port;
use crate::cmdq::CommandQueue;
use crate::dma::Port;
use crate::eq::{Plan, Role};
use crate::error::{Error, Failure};

/// log2 of the most QPs asked for, as in Linux.
const LOG_MAX_QP: u32 = 18;
/// Events of the async EQ, as in Linux.
const ASYNC_EVENTS: u64 = EventType::PATH_MIG.bit()
    | EventType::COMM_EST.bit()
    | EventType::SQ_DRAINED.bit()
    | EventType::CQ_ERROR.bit()
    | EventType::WQ_CATAS_ERROR.bit()
    | EventType::PATH_MIG_FAILED.bit()
    | EventType::PORT_CHANGE.bit()
    | EventType::WQ_INVAL_REQ_ERROR.bit()
    | EventType::WQ_ACCESS_ERROR.bit()
    | EventType::SRQ_CATAS_ERROR.bit()
    | EventType::SRQ_LAST_WQE.bit()
    | EventType::SRQ_RQ_LIMIT.bit();
/// Entries asked for of each kind of EQ, as in Linux.
const COMMAND_ENTRIES: u32 = 32;
const ASYNC_ENTRIES: u32 = 4096;
const PAGES_ENTRIES: u32 = 1;
const COMPLETION_ENTRIES: u32 = 1024;

/// What the bring-up found and made.
pub(super) struct Brought {
    pub(super) caps: Caps,
    pub(super) info: DeviceInfo,
    pub(super) uar: u32,
    pub(super) completion_eqns: Vec<u32>,
    pub(super) resd_lkey: Option<u32>,
}

/// Gets the firmware to take commands.
pub(super) fn connect(port: Arc<Port>, config: DeviceConfig) -> Result<Control, Error> {
    wait_for_firmware(&port, config.timeouts.firmware_start)?;
    let segment = port.init_segment();
    if segment.cmd_interface_rev() != CMD_INTERFACE_REV {
        return Err(Error::Unsupported { what: "this revision of the command interface" });
    }
    let (log_size, log_stride) = segment.cmdq_sizes();
    let queue = CommandQueue::new(&port, log_size, log_stride)?;
    segment.set_cmdq_address(queue.iova());
    wait_for_firmware(&port, config.timeouts.firmware_init)?;
    if segment.embedded_cpu() {
        return Err(Error::Unsupported { what: "functions of an embedded CPU" });
    }
    Ok(Control::new(port, config, queue))
}

/// Waits until the firmware no longer says that it is initializing.
fn wait_for_firmware(port: &Port, timeout: u64) -> Result<(), Error> {
    let deadline = port.platform().now().saturating_add(timeout);
    let segment = port.init_segment();
    while segment.initializing() {
        if !segment.answers() {
            return Err(Error::Failed { why: Failure::Gone, command: None, sent: false });
        }
        if port.platform().now() >= deadline {
            return Err(Error::FirmwareNotReady);
        }
        port.platform().relax();
    }
    Ok(())
}

/// Everything from ENABLE_HCA to the event queues and the port.
pub(super) fn bring_up(control: &Control) -> Result<Brought, Error> {
    control.step(&EnableHca, |steps| {
        steps.enabled = true;
        control.queue.set_enabled(true);
    })?;
    let issi = set_issi(control)?;
    control.pages.satisfy(control, PagesStage::Boot)?;
    if !control.config.is_virtual() {
        control.exec(&WriteHostEndianness)?;
    }
    let set = set_caps(control)?;
    control.pages.satisfy(control, PagesStage::Init)?;
    control.step(&InitHca::default(), |steps| steps.initialised = true)?;
    if set.driver_version() {
        tell_version(control)?;
    }
    let caps = read_caps(control)?;
    let adapter = control.exec(&QueryAdapter)?;
    let resd_lkey = special_contexts(control, &caps)?;
    let uar = alloc_uar(control)?;
    let completion_eqns = event_queues(control, &caps, uar)?;
    let info = port::identify(control, &caps, issi, &adapter)?;
    Ok(Brought { caps, info, uar, completion_eqns, resd_lkey })
}

/// Chooses the newest interface that both sides know. A firmware without the query has the oldest.
fn set_issi(control: &Control) -> Result<u16, Error> {
    match control.exec(&QueryIssi) {
        Ok(info) if info.supported & 1 << 1 != 0 => control.exec(&SetIssi { issi: 1 }).map(|()| 1),
        Ok(_) | Err(Error::Command { status: Status::BAD_OP_ERR, .. }) => Ok(0),
        Err(e) => Err(e),
    }
}

fn query(control: &Control, cap_type: CapType, mode: CapMode) -> Result<Box<CapPage>, Error> {
    control.exec(&QueryHcaCap { cap_type, mode }).map(Box::new)
}

/// Sets the capabilities as Linux does, within what the device allows.
fn set_caps(control: &Control) -> Result<CmdHcaCap, Error> {
    let mut page = query(control, CapType::GENERAL, CapMode::Current)?;
    let mut caps = page.general();
    if caps.cqe_version() == 0 {
        return Err(Error::Unsupported {
            what: "completion queue entries of version 0 (cqe_version), which name no user index",
        });
    }
    let max = query(control, CapType::GENERAL, CapMode::Max)?.general();
    caps.set_pkey_table_size(0);
    caps.set_log_max_qp(LOG_MAX_QP.min(max.log_max_qp()));
    caps.set_cmdif_checksum(0);
    caps.set_log_uar_page_sz(0);
    if max.roce_rw_supported() && max.roce() {
        caps.set_roce(true);
    }
    page.set_general(caps);
    control.exec(&SetHcaCap { cap_type: CapType::GENERAL, page: &page })?;
    if caps.atomic() {
        set_atomic_caps(control)?;
    }
    if caps.roce() {
        set_roce_caps(control)?;
    }
    Ok(caps)
}

/// Has atomics answer in the host's byte order, where the device can; verbs know no other.
fn set_atomic_caps(control: &Control) -> Result<(), Error> {
    let mut page = query(control, CapType::ATOMIC, CapMode::Current)?;
    let atomic = page.atomic();
    if atomic.supported_atomic_req_8b_endianness_mode_1() {
        let order = AtomicOrder::HOST_ENDIANNESS.0.into();
        page.set_atomic_caps(atomic.with_atomic_req_8b_endianness_mode(order));
        control.exec(&SetHcaCap { cap_type: CapType::ATOMIC, page: &page })?;
    }
    Ok(())
}

fn set_roce_caps(control: &Control) -> Result<(), Error> {
    let mut page = query(control, CapType::ROCE, CapMode::Current)?;
    let max = query(control, CapType::ROCE, CapMode::Max)?.roce();
    let roce = page.roce();
    if max.sw_r_roce_src_udp_port() && !roce.sw_r_roce_src_udp_port() {
        page.set_roce_cap(roce.with_sw_r_roce_src_udp_port(true));
        control.exec(&SetHcaCap { cap_type: CapType::ROCE, page: &page })?;
    }
    Ok(())
}

/// Tells the firmware who drives it. It is for people who look at the device from elsewhere: a refusal does no harm.
fn tell_version(control: &Control) -> Result<(), Error> {
    match control.exec(&SetDriverVersion { version: concat!("Rust,mlx5,", env!("CARGO_PKG_VERSION")) }) {
        Err(Error::Command { .. }) => Ok(()),
        other => other,
    }
}

/// Reads the capabilities in force once the function is started.
fn read_caps(control: &Control) -> Result<Caps, Error> {
    let general = query(control, CapType::GENERAL, CapMode::Current)?.general();
    control.queue.set_signatures(general.cmdif_checksum() != 0);
    let mut caps = Caps { general, atomic: None, roce: None };
    if general.atomic() {
        caps.atomic = Some(query(control, CapType::ATOMIC, CapMode::Current)?.atomic());
    }
    if general.roce() {
        caps.roce = Some(query(control, CapType::ROCE, CapMode::Current)?.roce());
    }
    Ok(caps)
}

/// The reserved lkey, from a firmware that has special contexts at all.
fn special_contexts(control: &Control, caps: &Caps) -> Result<Option<u32>, Error> {
    let general = &caps.general;
    if !(general.null_mkey() || general.dump_fill_mkey() || general.terminate_scatter_list_mkey()) {
        return Ok(None);
    }
    let contexts = control.exec(&QuerySpecialContexts)?;
    Ok(Some(contexts.resd_lkey).filter(|key| *key != 0))
}

fn alloc_uar(control: &Control) -> Result<u32, Error> {
    let uar = control.exec(&AllocUar)?;
    control.note(|steps| steps.uar = Some(uar));
    let end = (uar as usize + 1).saturating_mul(mlx5_hw::uar::PAGE_SIZE);
    if end > control.port.bar().size() {
        return Err(Error::Protocol { what: "ALLOC_UAR gave a page beyond the BAR" });
    }
    Ok(uar)
}

/// The command, async and page request EQs, then those of the completion vectors.
fn event_queues(control: &Control, caps: &Caps, uar: u32) -> Result<Vec<u32>, Error> {
    let eqs = &control.eqs;
    let most = match caps.general.max_num_eqs() {
        0 => 1 << caps.general.log_max_eq(),
        n => n,
    };
    let wanted = control.config.completion_vectors.min(most.saturating_sub(3));
    if wanted < control.config.completion_vectors.min(1) {
        return Err(Error::Unsupported { what: "completions: the device has three event queues or fewer" });
    }
    let plan = |role, entries, events| Plan { role, entries, events, vector: 0 };
    eqs.create(control, uar, &plan(Role::Command, COMMAND_ENTRIES, EventType::CMD.bit()))?;
    control.queue.set_events(true);
    eqs.create(control, uar, &plan(Role::Async, ASYNC_ENTRIES, ASYNC_EVENTS))?;
    if !caps.general.page_request_disable() {
        eqs.create(control, uar, &plan(Role::Pages, PAGES_ENTRIES, EventType::PAGE_REQUEST.bit()))?;
    }
    let completion =
        |i| Plan { vector: control.config.interrupt_of(i), ..plan(Role::Completion, COMPLETION_ENTRIES, 0) };
    (0..wanted).map(|i| eqs.create(control, uar, &completion(i))).collect()
}

#[cfg(test)]
mod tests {
    /// Linux asks for these in its CREATE_EQ of a function without further capabilities.
    #[test]
    fn async_events_are_linuxs() {
        assert_eq!(super::ASYNC_EVENTS, 0x1f_02be);
    }
}
