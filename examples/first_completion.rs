//! From a function that has been reset to a completion that was polled, on the software function.
//!
//! Run it with `cargo run --example first_completion`. On a card only the first two lines differ.

use std::error::Error;

use mlx5::{AccessFlags, Device, DeviceConfig, PollAttr, QpCap, QpInitAttr, RecvWr, SendFlags, SendWr, Sge, ibv};
use mlx5_model::{Model, ModelConfig};

mod common;

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::new(ModelConfig::default());
    let device = Device::open(model.clone(), model.clone(), DeviceConfig::default())?;

    let pd = ibv::alloc_pd(&device)?;
    let mut cq = ibv::create_cq(&device, 16, 0, None, 0)?;
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let mut a = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap))?;
    let mut b = ibv::create_qp(&pd, &mut QpInitAttr::new(&cq, &cq, cap))?;
    common::connect(&device, &mut a, b.qp_num())?;
    common::connect(&device, &mut b, a.qp_num())?;

    let hello = b"a message through the device";
    let from = pd.alloc_buf(4096, AccessFlags::empty())?;
    let to = pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE)?;
    from.write(0, hello)?;
    let receive = [Sge { addr: to.addr(), length: 4096, lkey: to.lkey() }];
    let send = [Sge { addr: from.addr(), length: hello.len() as u32, lkey: from.lkey() }];
    ibv::post_recv(&mut b, &[RecvWr { wr_id: 1, sg_list: &receive }])?;
    let request = SendWr { wr_id: 2, sg_list: &send, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    ibv::post_send(&mut a, &[request])?;

    let mut seen = 0;
    while seen < 2 {
        model.step(1_000);
        let Ok(mut poller) = ibv::start_poll(&mut cq, &PollAttr::default()) else { continue };
        let mut completion = Ok(poller.completion());
        while let Ok(c) = completion {
            println!("wr_id {}: {:?}, {:?}, {:?} bytes", c.wr_id(), c.status(), c.opcode(), c.byte_len());
            seen += 1;
            completion = poller.next();
        }
    }
    let mut got = vec![0; hello.len()];
    to.read(0, &mut got)?;
    println!("received: {}", String::from_utf8_lossy(&got));

    ibv::destroy_qp(a)?;
    ibv::destroy_qp(b)?;
    ibv::destroy_cq(cq)?;
    from.dereg()?;
    to.dereg()?;
    ibv::dealloc_pd(pd)?;
    ibv::close_device(device)?;
    assert!(model.violations().is_empty(), "{:?}", model.violations());
    Ok(())
}
