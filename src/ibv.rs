//! The verbs by their names, in the argument order of their man pages.
//!
//! Each is one call of the method that does the work; errors are typed and give their number with
//! [`Error::errno`](crate::Error::errno). What C passes as a NULL pointer is an `Option` here, an object that a call ends is
//! moved into it, and comes back when the call fails.

pub mod dv;

use core::ptr::NonNull;

use mlx5_hw::platform::{Bar, Platform};

use crate::{
    AccessFlags, Ah, AhAttr, AsyncEvent, CompChannel, Completion, Cq, CqEvent, CqInitAttrEx, Device, DeviceAttr,
    DeviceConfig, Error, ExclusiveCqs, ModifyCqAttr, Mr, ParentDomain, ParentDomainInitAttr, Pd, PollAttr, PollError,
    Poller, PortAttr, PostError, Qp, QpAttr, QpAttrMask, QpInitAttr, RecvWr, Returned, SendBatch, SendWr, Srq, SrqAttr,
    SrqAttrMask, SrqInitAttr, ValuesEx, ValuesMask, Wc, WcFlags,
};

/// `ibv_open_device(3)`. Instead of a device of a list it takes the two traits of a port.
///
/// # Errors
/// As [`Device::open`].
pub fn open_device(
    platform: impl Platform + 'static,
    bar: impl Bar + 'static,
    config: DeviceConfig,
) -> Result<Device, Error> {
    Device::open(platform, bar, config)
}

/// `ibv_close_device(3)`.
///
/// # Errors
/// As [`Device::close`].
pub fn close_device(context: Device) -> Result<(), Returned<Device>> {
    context.close()
}

/// `ibv_query_device(3)`.
pub fn query_device(context: &Device) -> DeviceAttr {
    context.query_device()
}

/// `ibv_query_port(3)`.
///
/// # Errors
/// As [`Device::query_port`].
pub fn query_port(context: &Device, port_num: u8) -> Result<PortAttr, Error> {
    context.query_port(port_num)
}

/// `ibv_query_rt_values_ex(3)`. C's `values` is the mask that is given and what is returned.
///
/// # Errors
/// As [`Device::query_rt_values_ex`].
pub fn query_rt_values_ex(context: &Device, comp_mask: ValuesMask) -> Result<ValuesEx, Error> {
    context.query_rt_values_ex(comp_mask)
}

/// `ibv_get_async_event(3)`. C's waits for ever; here until the time `deadline` of the platform's clock, `u64::MAX` for never.
/// What is EAGAIN in C, on a descriptor with `O_NONBLOCK`, is the `None` of [`Device::try_get_async_event`]. There is no
/// `ibv_ack_async_event`: an event that is taken is acknowledged, and destroying an object waits for nobody.
///
/// # Errors
/// As [`Device::get_async_event`].
pub fn get_async_event(context: &Device, deadline: u64) -> Result<AsyncEvent, Error> {
    context.get_async_event(deadline)
}

/// `ibv_alloc_pd(3)`.
///
/// # Errors
/// As [`Device::alloc_pd`].
pub fn alloc_pd(context: &Device) -> Result<Pd, Error> {
    context.alloc_pd()
}

/// `ibv_dealloc_pd(3)`.
///
/// # Errors
/// As [`Pd::dealloc`].
pub fn dealloc_pd(pd: Pd) -> Result<(), Returned<Pd>> {
    pd.dealloc()
}

/// `ibv_alloc_parent_domain(3)`.
///
/// # Errors
/// As [`Device::alloc_parent_domain`].
pub fn alloc_parent_domain(context: &Device, attr: &ParentDomainInitAttr<'_>) -> Result<ParentDomain, Error> {
    context.alloc_parent_domain(attr)
}

/// `ibv_dealloc_pd(3)` of a parent domain.
///
/// # Errors
/// As [`ParentDomain::dealloc`].
pub fn dealloc_parent_domain(pd: ParentDomain) -> Result<(), Returned<ParentDomain>> {
    pd.dealloc()
}

/// `ibv_reg_mr(3)`, of the caller's memory. [`Pd::alloc_buf`] registers memory safely.
///
/// # Errors
/// As [`Pd::reg_mr`].
///
/// # Safety
/// As [`Pd::reg_mr`].
pub unsafe fn reg_mr(pd: &Pd, addr: NonNull<u8>, length: usize, access: AccessFlags) -> Result<Mr, Error> {
    // SAFETY: the same contract.
    unsafe { pd.reg_mr(addr, length, access) }
}

/// `ibv_dereg_mr(3)`.
///
/// # Errors
/// As [`Mr::dereg`].
pub fn dereg_mr(mr: Mr) -> Result<(), Returned<Mr>> {
    mr.dereg()
}

/// `ibv_create_comp_channel(3)`.
pub fn create_comp_channel(context: &Device) -> CompChannel {
    context.create_comp_channel()
}

/// `ibv_destroy_comp_channel(3)`.
///
/// # Errors
/// As [`CompChannel::destroy`].
pub fn destroy_comp_channel(channel: CompChannel) -> Result<(), Returned<CompChannel>> {
    channel.destroy()
}

/// `ibv_req_notify_cq(3)`.
///
/// # Errors
/// As [`Cq::req_notify`].
pub fn req_notify_cq(cq: &mut Cq, solicited_only: bool) -> Result<(), Error> {
    cq.req_notify(solicited_only)
}

/// `ibv_get_cq_event(3)`, until the time `deadline` of the platform's clock, `u64::MAX` for never. What is EAGAIN in C, on a
/// descriptor with `O_NONBLOCK`, is the `None` of [`CompChannel::try_get_event`].
///
/// # Errors
/// As [`CompChannel::get_event`].
pub fn get_cq_event(channel: &CompChannel, deadline: u64) -> Result<CqEvent, Error> {
    channel.get_event(deadline)
}

/// `ibv_ack_cq_events(3)`.
///
/// # Errors
/// As [`Cq::ack_events`].
pub fn ack_cq_events(cq: &Cq, nevents: u32) -> Result<(), Error> {
    cq.ack_events(nevents)
}

/// `ibv_create_cq(3)`.
///
/// # Errors
/// As [`Device::create_cq_ex`].
pub fn create_cq(
    context: &Device,
    cqe: u32,
    cq_context: u64,
    channel: Option<&CompChannel>,
    comp_vector: u32,
) -> Result<Cq, Error> {
    let wc_flags = WcFlags::STANDARD;
    context.create_cq_ex(&CqInitAttrEx { cqe, cq_context, channel, comp_vector, wc_flags, ..Default::default() })
}

/// `ibv_create_cq_ex(3)`.
///
/// # Errors
/// As [`Device::create_cq_ex`].
pub fn create_cq_ex(context: &Device, cq_attr: &CqInitAttrEx<'_>) -> Result<Cq, Error> {
    context.create_cq_ex(cq_attr)
}

/// `ibv_destroy_cq(3)`.
///
/// # Errors
/// As [`Cq::destroy`].
#[expect(clippy::result_large_err, reason = "the CQ itself comes back")]
pub fn destroy_cq(cq: Cq) -> Result<(), Returned<Cq>> {
    cq.destroy()
}

/// `ibv_resize_cq(3)`.
///
/// # Errors
/// As [`Cq::resize`].
pub fn resize_cq(cq: &mut Cq, cqe: u32) -> Result<(), Error> {
    cq.resize(cqe)
}

/// `ibv_modify_cq(3)`.
///
/// # Errors
/// As [`Cq::modify`].
pub fn modify_cq(cq: &Cq, attr: &ModifyCqAttr) -> Result<(), Error> {
    cq.modify(attr)
}

/// `ibv_poll_cq(3)`.
///
/// # Errors
/// As [`Cq::poll_cq`].
pub fn poll_cq(cq: &mut Cq, wc: &mut [Wc]) -> Result<usize, PollError> {
    cq.poll_cq(wc)
}

/// `ibv_start_poll` (`ibv_create_cq_ex(3)`).
///
/// # Errors
/// As [`Cq::start_poll`].
pub fn start_poll<'a>(cq: &'a mut Cq, attr: &PollAttr) -> Result<Poller<'a>, PollError> {
    cq.start_poll(attr)
}

/// `ibv_next_poll` (`ibv_create_cq_ex(3)`).
///
/// # Errors
/// As [`Poller::next`].
pub fn next_poll<'p>(poller: &'p mut Poller<'_>) -> Result<Completion<'p>, PollError> {
    poller.next()
}

/// `ibv_end_poll` (`ibv_create_cq_ex(3)`): what dropping the poller does.
pub fn end_poll(poller: Poller<'_>) {
    drop(poller);
}

/// `ibv_create_srq(3)`.
///
/// # Errors
/// As [`Pd::create_srq`].
pub fn create_srq(pd: &Pd, srq_init_attr: &mut SrqInitAttr) -> Result<Srq, Error> {
    pd.create_srq(srq_init_attr)
}

/// `ibv_modify_srq(3)`.
///
/// # Errors
/// As [`Srq::modify`].
pub fn modify_srq(srq: &Srq, srq_attr: &SrqAttr, srq_attr_mask: SrqAttrMask) -> Result<(), Error> {
    srq.modify(srq_attr, srq_attr_mask)
}

/// `ibv_query_srq(3)`.
///
/// # Errors
/// As [`Srq::query`].
pub fn query_srq(srq: &Srq) -> Result<SrqAttr, Error> {
    srq.query()
}

/// `ibv_get_srq_num(3)`.
pub fn get_srq_num(srq: &Srq) -> u32 {
    srq.srq_num()
}

/// `ibv_destroy_srq(3)`.
///
/// # Errors
/// As [`Srq::destroy`].
pub fn destroy_srq(srq: Srq) -> Result<(), Returned<Srq>> {
    srq.destroy()
}

/// `ibv_post_srq_recv(3)`. The error has C's `bad_wr` as an index.
///
/// # Errors
/// As [`Srq::post_recv`].
pub fn post_srq_recv(srq: &mut Srq, recv_wr: &[RecvWr<'_>]) -> Result<(), PostError> {
    srq.post_recv(recv_wr)
}

/// `ibv_create_ah(3)`.
///
/// # Errors
/// As [`Pd::create_ah`].
pub fn create_ah(pd: &Pd, attr: &AhAttr) -> Result<Ah, Error> {
    pd.create_ah(attr)
}

/// `ibv_init_ah_from_wc` (`ibv_create_ah_from_wc(3)`).
///
/// # Errors
/// As [`Device::init_ah_from_wc`].
pub fn init_ah_from_wc(context: &Device, port_num: u8, wc: &Wc, grh: &[u8; 40]) -> Result<AhAttr, Error> {
    context.init_ah_from_wc(port_num, wc, grh)
}

/// `ibv_create_ah_from_wc(3)`.
///
/// # Errors
/// As [`Pd::create_ah_from_wc`].
pub fn create_ah_from_wc(pd: &Pd, wc: &Wc, grh: &[u8; 40], port_num: u8) -> Result<Ah, Error> {
    pd.create_ah_from_wc(wc, grh, port_num)
}

/// `ibv_destroy_ah(3)`, which cannot fail.
pub fn destroy_ah(ah: Ah) {
    ah.destroy();
}

/// `ibv_create_qp(3)`.
///
/// # Errors
/// As [`Pd::create_qp`].
pub fn create_qp(pd: &Pd, qp_init_attr: &mut QpInitAttr<'_>) -> Result<Qp, Error> {
    pd.create_qp(qp_init_attr)
}

/// `ibv_modify_qp(3)`, to every state but Reset; for that there is [`reset_qp`].
///
/// # Errors
/// As [`Qp::modify`].
pub fn modify_qp(qp: &mut Qp, attr: &QpAttr, attr_mask: QpAttrMask) -> Result<(), Error> {
    qp.modify(attr, attr_mask)
}

/// `ibv_modify_qp(3)` to Reset, which needs the CQs exclusively.
///
/// # Errors
/// As [`Qp::reset`].
pub fn reset_qp(qp: &mut Qp, cqs: ExclusiveCqs<'_>) -> Result<(), Error> {
    qp.reset(cqs)
}

/// `ibv_query_qp(3)`: all attributes, whatever C's mask would ask for.
///
/// # Errors
/// As [`Qp::query`].
pub fn query_qp(qp: &Qp) -> Result<QpAttr, Error> {
    qp.query()
}

/// `ibv_destroy_qp(3)`.
///
/// # Errors
/// As [`Qp::destroy`].
#[expect(clippy::result_large_err, reason = "the queue pair itself comes back")]
pub fn destroy_qp(qp: Qp) -> Result<(), Returned<Qp>> {
    qp.destroy()
}

/// `ibv_post_send(3)`. The error has C's `bad_wr` as an index.
///
/// # Errors
/// As [`Qp::post_send`].
pub fn post_send(qp: &mut Qp, wr: &[SendWr<'_>]) -> Result<(), PostError> {
    qp.post_send(wr)
}

/// `ibv_wr_start` (`ibv_wr_post(3)`). Requests are given to [`SendBatch::post_send`] instead of to a setter for each of their parts.
pub fn wr_start(qp: &mut Qp) -> SendBatch<'_> {
    qp.wr_start()
}

/// `ibv_wr_complete` (`ibv_wr_post(3)`): what dropping the batch does. What could not be posted was told by
/// [`SendBatch::post_send`]; C tells it here, and posts nothing then.
pub fn wr_complete(batch: SendBatch<'_>) {
    batch.wr_complete();
}

/// `ibv_post_recv(3)`. The error has C's `bad_wr` as an index.
///
/// # Errors
/// As [`Qp::post_recv`].
pub fn post_recv(qp: &mut Qp, wr: &[RecvWr<'_>]) -> Result<(), PostError> {
    qp.post_recv(wr)
}
