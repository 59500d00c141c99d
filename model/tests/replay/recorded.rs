//! The recorded commands: cases of kind `command-bytes`.

use serde_json::Value;

/// One command as the driver gave it and as the card gave it back.
pub struct Case {
    pub id: String,
    pub name: String,
    pub slot: usize,
    /// The entry before and after.
    pub before: [u8; 64],
    pub after: [u8; 64],
    /// Input behind the inline part; empty where the trace does not have it.
    pub in_data: Vec<u8>,
    /// Address of the first page in the input; 0 where there is none.
    pub pas0: u64,
    /// The first block of the output mailbox as the card left it.
    pub out_block: Option<Vec<u8>>,
}

impl Case {
    pub fn token(&self) -> u8 {
        self.before[0x3c]
    }

    pub fn in_len(&self) -> usize {
        dword(&self.before, 0x4)
    }

    pub fn out_len(&self) -> usize {
        dword(&self.before, 0x38)
    }

    fn parse(line: &str) -> Option<Self> {
        let case: Value = serde_json::from_str(line).unwrap();
        if case["kind"] != "command-bytes" {
            return None;
        }
        let (input, expected) = (&case["input"], &case["expected"]);
        let entry = |key: &str| unhex(&input[key]).unwrap().try_into().unwrap();
        let before: [u8; 64] = entry("descriptor_before_hex");
        let behind = dword(&before, 0x4) - 16;
        let blocks = input["in_mailbox_blocks_hex"].as_array().into_iter().flatten();
        let mut in_data: Vec<u8> = blocks.flat_map(|block| unhex(block).unwrap()[..512].to_vec()).collect();
        in_data.truncate(behind);
        Some(Self {
            id: case["id"].as_str().unwrap().into(),
            name: expected["opcode_name"].as_str().unwrap().into(),
            slot: if expected["opcode_name"] == "MANAGE_PAGES" { 31 } else { 0 },
            before,
            after: entry("descriptor_after_hex"),
            in_data,
            pas0: expected["pas0"].as_u64().unwrap_or(0),
            out_block: unhex(&input["out_mailbox_blocks_hex"][0]),
        })
    }
}

fn dword(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn unhex(hex: &Value) -> Option<Vec<u8>> {
    let hex = hex.as_str()?;
    Some((0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect())
}

/// All recorded commands, in the order of the trace.
pub fn cases() -> Vec<Case> {
    include_str!("../../../tests/data/public-cases.jsonl").lines().filter_map(Case::parse).collect()
}
