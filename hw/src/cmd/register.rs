//! Access to registers.

use super::{Command, Opcode, Sink, Source, set_opcode};

crate::cmd::inbox! {
    /// Input of ACCESS_REG.
    pub struct AccessRegisterIn("access_register_in", 16) {
        /// Which register: [`RegisterId`].
        register_id: 0x50, 16;
        /// Argument of some registers.
        argument: 0x60, 32;
        /// The register's contents.
        register_data: 0x80, [32;];
    }
}

crate::cmd::outbox! {
    /// Output of ACCESS_REG.
    pub struct AccessRegisterOut("access_register_out", 16) {
        /// The register's contents.
        register_data: 0x80, [32;];
    }
}

crate::prm! {
    /// Register HOST_ENDIANNESS.
    pub struct RegisterHostEndianness("register_host_endianness", 16) {
        /// Byte order of the host for atomics: false is little-endian, true big-endian.
        he: 0x00, 1;
    }
}

crate::prm_values! {
    /// Registers that the driver uses (constants `MLX5_REG_*`).
    pub struct RegisterId(u16) {
        /// Byte order of the host.
        HOST_ENDIANNESS = 0x7004;
    }
}

crate::prm_values! {
    /// Direction of ACCESS_REG (its `op_mod`).
    pub struct RegisterOp(u16) {
        /// Write the register.
        WRITE = 0x0;
        /// Read the register.
        READ = 0x1;
    }
}

/// Tells the device the byte order of this host, for atomics.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteHostEndianness;

impl Command for WriteHostEndianness {
    const OPCODE: Opcode = Opcode::ACCESS_REG;
    type Out = ();

    fn in_len(&self) -> usize {
        AccessRegisterIn::BYTES + RegisterHostEndianness::BYTES
    }

    fn out_len(&self) -> usize {
        AccessRegisterOut::BYTES + RegisterHostEndianness::BYTES
    }

    fn encode(&self, inbox: &mut dyn Sink) {
        let mut input = AccessRegisterIn::new()
            .with_op_mod(RegisterOp::WRITE.0.into())
            .with_register_id(RegisterId::HOST_ENDIANNESS.0.into());
        set_opcode(&mut input, Self::OPCODE);
        inbox.layout(0, &input);
        inbox.layout(
            AccessRegisterIn::REGISTER_DATA_OFFSET,
            &RegisterHostEndianness::new().with_he(cfg!(target_endian = "big")),
        );
    }

    fn decode(&self, _: &dyn Source) {}
}
