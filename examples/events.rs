//! An event loop: two completion queues on one channel, and a program that sleeps until one of them has something.
//!
//! Run it with `cargo run --example events`. On a card only the first lines differ: the software function runs on a thread of
//! its own here, and takes a millisecond from a completion to its event, so that the program has to sleep.

use std::error::Error;

use mlx5::{
    AccessFlags, CompChannel, Cq, Device, DeviceConfig, DmaBuf, Pd, PostError, Qp, QpCap, QpInitAttr, RecvWr,
    SendFlags, SendWr, Sge, Wc, ibv,
};
use mlx5_model::{EventPace, Model, ModelConfig};

mod common;

const MESSAGES: u64 = 8;
const SIZE: usize = 64;
/// No message takes that long: ten seconds.
const PATIENCE: u64 = 10_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::new(ModelConfig::default());
    let device = open(&model)?;
    let thread = model.spawn()?;

    let channel = ibv::create_comp_channel(&device);
    let pd = ibv::alloc_pd(&device)?;
    // The caller's own number of a queue comes with its events.
    let mut cqs =
        [ibv::create_cq(&device, 16, 0, Some(&channel), 0)?, ibv::create_cq(&device, 16, 1, Some(&channel), 1)?];
    let [mut a, mut b] = connected(&device, &pd, &cqs)?;

    let from = pd.alloc_buf(SIZE, AccessFlags::empty())?;
    let to = pd.alloc_buf(SIZE * MESSAGES as usize, AccessFlags::LOCAL_WRITE)?;
    receive_all(&mut b, &to)?;

    // Arm before anything is posted, then each time an event was taken.
    for cq in &mut cqs {
        ibv::req_notify_cq(cq, false)?;
    }
    let mut sent = 0;
    let mut completed = 0;
    while completed < 2 * MESSAGES {
        // One at a time, so that each has to be waited for.
        if sent == completed / 2 {
            from.write(0, &[sent as u8; SIZE])?;
            send(&mut a, 100 + sent, &from)?;
            sent += 1;
        }
        completed += serve(&device, &channel, &mut cqs)?;
    }
    let calls = model.calls();
    println!("{completed} completions, {} arms, {} sleeps", calls.cq_arms, calls.waits);

    ibv::destroy_qp(a)?;
    ibv::destroy_qp(b)?;
    for cq in cqs {
        ibv::destroy_cq(cq)?;
    }
    ibv::destroy_comp_channel(channel)?;
    from.dereg()?;
    to.dereg()?;
    ibv::dealloc_pd(pd)?;
    drop(thread);
    ibv::close_device(device)?;
    assert!(model.violations().is_empty(), "{:?}", model.violations());
    Ok(())
}

/// Opens the function, whose events take a millisecond each.
fn open(model: &Model) -> Result<Device, Box<dyn Error>> {
    // A completion vector for each queue, and an interrupt for each vector and one for all else.
    let mut config = DeviceConfig::default();
    (config.completion_vectors, config.interrupts) = (2, 3);
    let device = Device::open(model.clone(), model.clone(), config)?;
    let pace = EventPace { event_ns: (1_000_000, 1_000_000), ..EventPace::default() };
    model.event_queues().iter().for_each(|queue| assert!(model.set_event_pace(queue.eqn, pace)));
    Ok(device)
}

/// Two connected queue pairs, each with a completion queue of its own.
fn connected(device: &Device, pd: &Pd, cqs: &[Cq; 2]) -> Result<[Qp; 2], Box<dyn Error>> {
    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let mut a = ibv::create_qp(pd, &mut QpInitAttr::new(&cqs[0], &cqs[0], cap))?;
    let mut b = ibv::create_qp(pd, &mut QpInitAttr::new(&cqs[1], &cqs[1], cap))?;
    common::connect(device, &mut a, b.qp_num())?;
    common::connect(device, &mut b, a.qp_num())?;
    Ok([a, b])
}

/// Posts a receive for every message, each with its own part of the memory.
fn receive_all(qp: &mut Qp, to: &DmaBuf) -> Result<(), PostError> {
    for i in 0..MESSAGES {
        let piece = [Sge { addr: to.addr() + i * SIZE as u64, length: SIZE as u32, lkey: to.lkey() }];
        ibv::post_recv(qp, &[RecvWr { wr_id: i, sg_list: &piece }])?;
    }
    Ok(())
}

/// Sends what the memory holds.
fn send(qp: &mut Qp, wr_id: u64, from: &DmaBuf) -> Result<(), PostError> {
    let piece = [Sge { addr: from.addr(), length: SIZE as u32, lkey: from.lkey() }];
    let request = SendWr { wr_id, sg_list: &piece, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    ibv::post_send(qp, &[request])
}

/// Sleeps until a queue raises its event, and takes what it has; how many completions there were.
fn serve(device: &Device, channel: &CompChannel, cqs: &mut [Cq; 2]) -> Result<u64, Box<dyn Error>> {
    let event = ibv::get_cq_event(channel, device.now() + PATIENCE)?;
    let cq = cqs.iter_mut().find(|cq| cq.cqn() == event.cqn).ok_or("an event of nobody's")?;
    ibv::ack_cq_events(cq, 1)?;
    // Arm first, then poll until nothing is left: what came before the queue was armed raises no event. The other way round
    // a completion between the two would be slept over.
    ibv::req_notify_cq(cq, false)?;
    let (mut wcs, mut taken) = ([Wc::default(); 4], 0);
    loop {
        let n = ibv::poll_cq(cq, &mut wcs)?;
        for wc in &wcs[..n] {
            println!("queue {}: wr_id {}, {:?}, {:?}", cq.context(), wc.wr_id, wc.status, wc.opcode);
        }
        taken += n as u64;
        if n == 0 {
            return Ok(taken);
        }
    }
}
