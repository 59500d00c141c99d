//! Clients that break the protocol, by accident or on purpose: the server refuses or hangs up, and never panics.

use std::fs::File;
use std::os::fd::OwnedFd;

use mlx5_model::ModelConfig;
use mlx5_model::serve::ServeError;

use crate::client::{BAR0, CONFIG, Client, DMA_MAP, SET_IRQS, VERSION};
use crate::driver::{event, memory};

fn still_answers(client: &mut Client) {
    assert_eq!(client.read(CONFIG, 0, 2).unwrap(), [0xb3, 0x15]);
}

#[test]
fn accesses_that_no_region_takes_are_refused_and_the_server_goes_on() {
    let mut client = Client::new(ModelConfig::default());
    client.write(CONFIG, 4, &[6, 0]);
    for (region, offset, count) in
        [(1, 0, 4), (8, 0, 4), (9, 0, 4), (u32::MAX, 0, 4), (CONFIG, 0, 4097), (BAR0, 0, 9), (BAR0, 0, 1 << 20)]
    {
        assert!(client.read(region, offset, count).is_none(), "{count} bytes of region {region}");
    }
    // These are answered as on a bus: all ones.
    assert_eq!(client.read(CONFIG, u64::MAX, 4).unwrap(), [0xff; 4]);
    assert_eq!(client.read(CONFIG, 4094, 4).unwrap()[2..], [0xff; 2]);
    assert_eq!(client.read(BAR0, u64::MAX - 3, 4).unwrap(), [0xff; 4]);
    assert_eq!(client.read(BAR0, 1 << 20, 4).unwrap(), [0xff; 4]);
    for region in [0, 1, CONFIG, 8] {
        for len in [0, 1, 2, 3, 4, 5, 7, 8, 9, 300, 5000] {
            client.write(region, 0x18, &vec![0xff; len]);
            client.write(region, u64::MAX - 2, &vec![0xff; len]);
        }
    }
    still_answers(&mut client);
    assert!(client.end().is_ok());
}

#[test]
fn interrupts_out_of_range_are_ignored_or_refused() {
    let mut client = Client::new(ModelConfig { vectors: 4, ..ModelConfig::default() });
    let irq = event();
    for (index, flags, range) in [
        (2, 0x24, (4, 1)),
        (2, 0x24, (0, u32::MAX)),
        (2, 0x24, (u32::MAX, u32::MAX)),
        (2, 0x21, (3, u32::MAX)),
        (2, 0x00, (0, 4)),
        (2, u32::MAX, (0, 4)),
        (0, 0x24, (0, 1)),
        (5, 0x24, (0, 1)),
        (u32::MAX, 0x24, (0, 1)),
    ] {
        client.set_irqs(index, flags, range, &[&irq]);
        client.set_irqs(index, flags, range, &[]);
    }
    still_answers(&mut client);
    assert!(client.end().is_ok());
}

#[test]
fn an_eventfd_that_nobody_reads_does_not_hold_the_device_up() {
    let mut client = Client::new(ModelConfig::default());
    client.write(CONFIG, 4, &[6, 0]);
    let (reader, writer) = std::io::pipe().unwrap();
    let full = File::from(OwnedFd::from(writer));
    client.set_irqs(2, 0x24, (0, 1), &[&full]).unwrap();
    for _ in 0..20_000 {
        client.set_irqs(2, 0x21, (0, 1), &[]).unwrap();
    }
    still_answers(&mut client);
    drop(reader);
    client.set_irqs(2, 0x21, (0, 1), &[]).unwrap();
    still_answers(&mut client);
    assert!(client.end().is_ok());
}

#[test]
fn memory_that_is_no_memory_is_known_but_not_touched() {
    let mut client = Client::new(ModelConfig::default());
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = File::from(OwnedFd::from(reader));
    for (at, file) in [(0, File::open("/dev/zero").unwrap()), (0x1000, pipe), (0x2000, File::open("/").unwrap())] {
        assert!(client.map((at, 0x1000), 3, Some((&file, 0))).is_some());
    }
    let (two, more) = (memory(0x1000), memory(0x1000));
    client.send(DMA_MAP, 0, 48, &[0; 32], &[&two, &more]);
    assert!(client.reply().is_none(), "two files for one range");
    still_answers(&mut client);
    assert!(client.end().is_ok());
}

#[test]
fn a_server_that_is_told_nonsense_hangs_up_with_an_error() {
    let version = |json: &[u8]| [&[0; 4], json].concat();
    let nonsense: [(u16, usize, Vec<u8>); 5] = [
        (VERSION, 16 + 4 + 3, version(b"{}\x01")),
        (VERSION, 16 + 4 + 4, version(b"{\0}\0")),
        (VERSION, 0, version(b"{}\0")),
        (VERSION, 19, version(b"{}\0")),
        (VERSION, usize::from(u16::MAX), version(b"{}\0")),
    ];
    for (command, size, body) in nonsense {
        let mut client = Client::silent(ModelConfig::default());
        client.send(command, 0, size, &body, &[]);
        // The last one waits for more that never comes.
        if size < 0x1000 {
            assert!(client.is_cut_off(), "size {size}");
        }
        assert!(matches!(client.end(), Err(ServeError::Connection(_))), "size {size}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_message_ends_the_server_with_an_error() {
    for command in [DMA_MAP, SET_IRQS, 9, 10] {
        let mut client = Client::new(ModelConfig::default());
        client.send(command, 0, 48, &[0; 7], &[]);
        assert!(matches!(client.end(), Err(ServeError::Connection(_))), "command {command}");
    }
}
