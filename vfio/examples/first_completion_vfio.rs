//! From a function that vfio-pci holds to a completion that was polled: what a program does that uses the library on Linux.
//!
//! Run it with `cargo run -p mlx5-vfio --example first_completion_vfio -- 0000:03:00.0`, after `mlx5 bind 0000:03:00.0`. It is the
//! driver's own example `first_completion` but for the first lines and for how it waits.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("VFIO is Linux's; on other systems the driver runs on the software model or on a port of your own");
}

#[cfg(target_os = "linux")]
#[path = "../../examples/common/mod.rs"]
mod common;

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;

    use mlx5::{AccessFlags, Cq, Device, QpCap, QpInitAttr, RecvWr, SendFlags, SendWr, Sge, Wc, ibv};
    use mlx5_vfio::host::Host;
    use mlx5_vfio::port::{VfioFunction, VfioOptions};

    use super::common;

    /// No message takes that long: ten seconds, in nanoseconds.
    const PATIENCE: u64 = 10_000_000_000;

    pub fn main() -> Result<(), Box<dyn Error>> {
        let bdf =
            std::env::args().nth(1).ok_or("which function? pass its PCI address; `mlx5 list` shows them")?.parse()?;
        // The last handle to the function that goes resets it and gives it back; an obstacle is an error that says what to do.
        let function = VfioFunction::open(&Host::default(), bdf, &VfioOptions::default())?;
        let device = function.open_device(function.device_config())?;

        let pd = ibv::alloc_pd(&device)?;
        let channel = ibv::create_comp_channel(&device);
        let mut cq = ibv::create_cq(&device, 16, 0, Some(&channel), 0)?;
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
            seen += take(&device, &mut cq)?;
        }
        let mut got = vec![0; hello.len()];
        to.read(0, &mut got)?;
        println!("received: {}", String::from_utf8_lossy(&got));

        ibv::destroy_qp(a)?;
        ibv::destroy_qp(b)?;
        ibv::destroy_cq(cq)?;
        ibv::destroy_comp_channel(channel)?;
        from.dereg()?;
        to.dereg()?;
        ibv::dealloc_pd(pd)?;
        ibv::close_device(device)?;
        Ok(())
    }

    /// Sleeps until the queue has something, by an interrupt of the card, and takes it; how many completions that were.
    fn take(device: &Device, cq: &mut Cq) -> Result<usize, Box<dyn Error>> {
        cq.wait(device.now() + PATIENCE)?;
        let mut wcs = [Wc::default(); 2];
        let n = ibv::poll_cq(cq, &mut wcs)?;
        for wc in &wcs[..n] {
            println!("wr_id {}: {:?}, {:?}, {} bytes", wc.wr_id, wc.status, wc.opcode, wc.byte_len);
        }
        Ok(n)
    }
}
