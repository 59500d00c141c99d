//! The commands that a ConnectX-4 Lx answered in 2016, byte for byte from a public trace, put to the model in the states
//! that the card was in.
//!
//! Kept as recorded: lengths, inputs, tokens, the mailboxes' data. Changed: addresses, which become the model's memory, and
//! with them the entry's signature. What the public trace leaves out between two commands is done by the raw driver, which
//! also makes the objects that the card had by then, so that the numbers it gave come out the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/bytes.rs"]
mod bytes;
#[path = "../control/driver.rs"]
#[allow(dead_code, reason = "shared with the tests of the control side, which use all of it")]
mod driver;
mod recorded;

use driver::{Driver, get, load, put, sign, store};
use mlx5_hw::platform::Platform;
use mlx5_model::ModelConfig;
use recorded::{Case, cases};

/// Blocks that the longest recorded command needs.
const MOST_BLOCKS: usize = 202;
/// Pages that the card asked for.
const BOOT_PAGES: u32 = 6;
const INIT_PAGES: u32 = 0x3244;

/// What of an answer is compared.
const FIELDS: [&str; 8] =
    ["delivery", "status", "owner", "token", "signature", "entry", "mailbox data", "mailbox control"];

/// The answer to a command: the entry, and the output mailbox when there is one.
struct Answer {
    entry: Vec<u8>,
    block: Option<Vec<u8>>,
}

impl Answer {
    /// A field's value, as words that can be compared.
    fn field(&self, field: &str) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let block =
            |range: std::ops::Range<usize>| self.block.as_ref().map_or("none".into(), |block| hex(&block[range]));
        match field {
            "delivery" => (self.entry[0x3f] >> 1).to_string(),
            "status" => hex(&self.entry[0x20..0x28]),
            "owner" => (self.entry[0x3f] & 1).to_string(),
            "token" => hex(&self.entry[0x3c..0x3d]),
            "signature" => hex(&self.entry[0x3d..0x3e]),
            // Type, lengths, inline input and output; pointers aside.
            "entry" => [0..8, 0x10..0x30, 0x38..0x3c].map(|range| hex(&self.entry[range])).concat(),
            "mailbox data" => block(0..0x200),
            // Number, token, signatures; the pointer to the next aside.
            "mailbox control" => block(0x238..0x240),
            _ => panic!("no field {field}"),
        }
    }
}

/// The raw driver, and room for the longest chain of mailboxes.
struct Replay {
    driver: Driver,
    chain: u64,
}

impl Replay {
    fn new() -> Self {
        let config = ModelConfig { boot_pages: BOOT_PAGES, init_pages: INIT_PAGES, ..ModelConfig::default() };
        let mut driver = Driver::new(config);
        driver.start();
        let chain = driver.alloc(MOST_BLOCKS * 1024);
        Self { driver, chain }
    }

    /// Writes a chain of mailboxes with `data`, the token of the command, and signatures as recorded: none.
    fn write_chain(&self, data: &[u8], token: u8) -> u64 {
        let blocks = data.len().div_ceil(512);
        let memory = self.driver.memory_at(self.chain);
        for (index, part) in data.chunks(512).enumerate() {
            let mut block = [0; 576];
            block[..part.len()].copy_from_slice(part);
            if index + 1 < blocks {
                put(&mut block, 0x230 * 8, 64, self.chain + 1024 * (index as u64 + 1));
            }
            put(&mut block, 0x238 * 8, 32, index as u64);
            block[0x23d] = token;
            store(memory, 1024 * index, &block);
        }
        self.chain
    }

    /// Puts a recorded command into its slot, with `input` behind the inline part, and waits for the answer.
    fn run(&self, case: &Case, input: &[u8]) -> Answer {
        let mut entry = case.before;
        if !input.is_empty() {
            put(&mut entry, 0x8 * 8, 64, self.write_chain(input, case.token()));
        }
        let out = case.out_len().saturating_sub(16);
        if out > 0 {
            put(&mut entry, 0x30 * 8, 64, self.write_chain(&vec![0; out], case.token()));
        }
        let relocated = entry != case.before;
        if relocated {
            sign(&mut entry);
        }
        self.driver.post(case.slot, &entry);
        self.driver.finish_slot(case.slot);
        let mut answer = self.driver.entry(case.slot);
        if relocated {
            // The recorded signature stands for the recorded addresses: put them back.
            let differs = entry[0x3d] ^ case.before[0x3d];
            answer[0x3d] ^= differs;
        }
        let block = (out > 0).then(|| load(self.driver.memory_at(self.chain), 0, 576));
        Answer { entry: answer, block }
    }

    /// Takes the function to where the card was when it got this command. Returns the input behind the inline part.
    fn prepare(&mut self, case: &Case) -> Vec<u8> {
        match case.id.as_str() {
            "B-036" => return self.pages(BOOT_PAGES as usize),
            // Capabilities had been read and written, checksums turned off.
            "B-037" => {
                let mut page = self.driver.caps(1);
                put(&mut page, 0x42 * 8, 2, 0);
                self.driver.set_caps(&page).unwrap();
            }
            "B-038" => return self.pages(INIT_PAGES as usize),
            // The card gave UAR 0x10.
            "B-043" => while self.driver.small(0x802, 0).unwrap() < 0xf {},
            "B-047" => return self.event_queue(case),
            _ => (),
        }
        Vec::new()
    }

    fn pages(&mut self, count: usize) -> Vec<u8> {
        let first = self.driver.alloc(count * 4096);
        (0..count as u64).flat_map(|page| (first + 4096 * page).to_be_bytes()).collect()
    }

    /// The recorded context with another address of its one page of 128 KiB; 18 event queues before it.
    fn event_queue(&mut self, case: &Case) -> Vec<u8> {
        const UAR: u32 = 0x10;
        self.driver.uar = UAR;
        let page = self.driver.alloc(4096);
        store(self.driver.memory_at(page), 0, &[1; 4096]);
        for eqn in 1..0x13 {
            let mut body = vec![0; 0x110];
            put(&mut body, (0x8 + 0xd) * 8, 24, UAR.into());
            body[0x108..].copy_from_slice(&page.to_be_bytes());
            let out = self.driver.run(0x301, 0, &body, 16).unwrap();
            assert_eq!(get(&out, 0xb * 8, 8), eqn);
        }
        let mem = self.driver.model.alloc(128 << 10, 128 << 10).unwrap();
        store(&mem, 0, &vec![1; 128 << 10]);
        let mut input = case.in_data.clone();
        assert_eq!(get(&input, 0x100 * 8, 64), case.pas0, "the recorded page address is where the test takes it to be");
        put(&mut input, 0x100 * 8, 64, mem.iova());
        self.driver.memory.push(mem);
        input
    }
}

/// The recorded answer in the same terms.
fn recorded(case: &Case) -> Answer {
    Answer { entry: case.after.to_vec(), block: case.out_block.clone() }
}

#[test]
fn the_model_answers_as_the_card_did() {
    let mut replay = Replay::new();
    let cases = cases();
    let mut table = vec![[&["case", "command"], &FIELDS[..]].concat().join(" | ")];
    let mut wrong = Vec::new();
    for case in &cases {
        let input = replay.prepare(case);
        assert_eq!(case.in_len(), 16 + input.len(), "{}: the input is as long as recorded", case.id);
        let (ours, cards) = (replay.run(case, &input), recorded(case));
        let compared = FIELDS.map(|field| {
            let (a, b) = (cards.field(field), ours.field(field));
            let same = a == b;
            if !same {
                wrong.push(format!("{} {field}\n  card  {a}\n  model {b}", case.id));
            }
            if same { "same" } else { "OTHER" }
        });
        table.push([&[case.id.as_str(), case.name.as_str()], &compared[..]].concat().join(" | "));
        assert_eq!(replay.driver.broken(), [], "{}: a rule of the model that the card does not have", case.id);
    }
    println!("{}", table.join("\n"));
    assert_eq!(cases.len(), 10, "all public cases of this kind");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
