//! Memory keys, and the reserved ones.

use super::{Opcode, Plain};
use crate::mkc::Mkc;

crate::cmd::inbox! {
    /// Input of CREATE_MKEY.
    pub struct CreateMkeyIn("create_mkey_in", 272) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// The key pages on demand.
        pg_access: 0x60, 1;
        /// The memory is given as a user memory object, not as a list of translations.
        mkey_umem_valid: 0x61, 1;
        /// The data takes the direct path of a second PCIe function.
        data_direct: 0x62, 1;
        /// The context.
        memory_key_mkey_entry: 0x80, Mkc;
        /// Length of the translation list behind the structure, in units of 16 bytes.
        translations_octword_actual_size: 0x300, 32;
        /// User memory object that holds the memory.
        mkey_umem_id: 0x320, 32;
        /// Offset of the memory in the user memory object.
        mkey_umem_offset: 0x340, 64;
        /// Translations: 8-byte page entries (MTT) or 16-byte KLM entries, padded to a multiple of 16 bytes.
        klm_pas_mtt: 0x880, [32;];
    }
}

crate::cmd::outbox! {
    /// Output of CREATE_MKEY.
    pub struct CreateMkeyOut("create_mkey_out", 16) {
        /// Index of the key: the upper 24 bits of the key.
        mkey_index: 0x48, 24;
    }
}

crate::cmd::inbox! {
    /// Input of DESTROY_MKEY.
    pub struct DestroyMkeyIn("destroy_mkey_in", 16) {
        /// User context; 0 for the kernel's.
        uid: 0x10, 16;
        /// Index of the key.
        mkey_index: 0x48, 24;
    }
}

crate::cmd::outbox! {
    /// Output of DESTROY_MKEY.
    pub struct DestroyMkeyOut("destroy_mkey_out", 16) {
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_MKEY.
    pub struct QueryMkeyIn("query_mkey_in", 16) {
        /// Index of the key.
        mkey_index: 0x48, 24;
        /// Ask for a key that pages on demand.
        pg_access: 0x60, 1;
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_MKEY.
    pub struct QueryMkeyOut("query_mkey_out", 304) {
        /// The context.
        memory_key_mkey_entry: 0x80, Mkc;
        /// First 16 bytes of the translations or signature descriptor.
        bsf0_klm0_pas_mtt0_1: 0x880, [8; 16];
        /// Second 16 bytes of the translations or signature descriptor.
        bsf1_klm1_pas_mtt2_3: 0x900, [8; 16];
    }
}

crate::cmd::inbox! {
    /// Input of QUERY_SPECIAL_CONTEXTS.
    pub struct QuerySpecialContextsIn("query_special_contexts_in", 16) {
    }
}

crate::cmd::outbox! {
    /// Output of QUERY_SPECIAL_CONTEXTS.
    pub struct QuerySpecialContextsOut("query_special_contexts_out", 32) {
        /// Key of a DUMP work request that only fills up.
        dump_fill_mkey: 0x40, 32;
        /// Reserved lkey: its addresses are I/O addresses.
        resd_lkey: 0x60, 32;
        /// Key whose writes vanish and whose reads give zeros.
        null_mkey: 0x80, 32;
        /// Key that ends a scatter list.
        terminate_scatter_list_mkey: 0xa0, 32;
        /// Key of a repeated block.
        repeated_mkey: 0xc0, 32;
    }
}

/// Creates a memory key; answers its index. The key itself is the index shifted left by 8, with the context's
/// `mkey_7_0` as low byte.
#[derive(Clone, Copy, Debug)]
pub struct CreateMkey<'a> {
    /// The context; its `translations_octword_size` says for how many translations there is room.
    pub mkc: Mkc,
    /// 8-byte translation entries. The command pads them to 16 bytes and states their length.
    pub translations: &'a [u64],
}

impl Plain for CreateMkey<'_> {
    const CODE: Opcode = Opcode::CREATE_MKEY;
    type In = CreateMkeyIn;
    type Reply = CreateMkeyOut;
    type Value = u32;
    const LIST_ALIGN: usize = 16;
    fn fill(&self, input: &mut CreateMkeyIn) {
        input.set_memory_key_mkey_entry(self.mkc);
        input.set_translations_octword_actual_size(self.translations.len().div_ceil(2) as u32);
    }
    fn list(&self) -> &[u64] {
        self.translations
    }
    fn read(&self, out: &CreateMkeyOut) -> u32 {
        out.mkey_index()
    }
}

/// Destroys a memory key. From its success on the device no longer reaches the memory through it.
#[derive(Clone, Copy, Debug)]
pub struct DestroyMkey {
    /// Index of the key.
    pub mkey_index: u32,
}

impl Plain for DestroyMkey {
    const CODE: Opcode = Opcode::DESTROY_MKEY;
    type In = DestroyMkeyIn;
    type Reply = DestroyMkeyOut;
    type Value = ();
    fn fill(&self, input: &mut DestroyMkeyIn) {
        input.set_mkey_index(self.mkey_index);
    }
    fn read(&self, _: &DestroyMkeyOut) {}
}

/// Reads the context of a memory key.
#[derive(Clone, Copy, Debug)]
pub struct QueryMkey {
    /// Index of the key.
    pub mkey_index: u32,
}

impl Plain for QueryMkey {
    const CODE: Opcode = Opcode::QUERY_MKEY;
    type In = QueryMkeyIn;
    type Reply = QueryMkeyOut;
    type Value = Mkc;
    fn fill(&self, input: &mut QueryMkeyIn) {
        input.set_mkey_index(self.mkey_index);
    }
    fn read(&self, out: &QueryMkeyOut) -> Mkc {
        out.memory_key_mkey_entry()
    }
}

/// Reads the reserved memory keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuerySpecialContexts;

/// Answer of [`QuerySpecialContexts`]: 32-bit memory keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialContexts {
    /// Key of a DUMP work request that only fills up, with capability `dump_fill_mkey`.
    pub dump_fill_mkey: u32,
    /// Reserved lkey: its addresses are I/O addresses, so it reaches all memory that the function reaches.
    pub resd_lkey: u32,
    /// Key whose writes vanish and whose reads give zeros, with capability `null_mkey`.
    pub null_mkey: u32,
    /// Key that ends a scatter list, with capability `terminate_scatter_list_mkey`.
    pub terminate_scatter_list_mkey: u32,
    /// Key of a repeated block, with capability `repeated_mkey`.
    pub repeated_mkey: u32,
}

impl Plain for QuerySpecialContexts {
    const CODE: Opcode = Opcode::QUERY_SPECIAL_CONTEXTS;
    type In = QuerySpecialContextsIn;
    type Reply = QuerySpecialContextsOut;
    type Value = SpecialContexts;
    fn fill(&self, _: &mut QuerySpecialContextsIn) {}
    fn read(&self, out: &QuerySpecialContextsOut) -> SpecialContexts {
        SpecialContexts {
            dump_fill_mkey: out.dump_fill_mkey(),
            resd_lkey: out.resd_lkey(),
            null_mkey: out.null_mkey(),
            terminate_scatter_list_mkey: out.terminate_scatter_list_mkey(),
            repeated_mkey: out.repeated_mkey(),
        }
    }
}
