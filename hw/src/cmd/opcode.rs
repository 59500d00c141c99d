//! Opcodes of the firmware's commands.

crate::prm_values! {
    /// Opcode of a command (PRM `opcode`; constants `MLX5_CMD_OP_*`).
    pub struct Opcode(u16) {
        /// Reads a page of capabilities.
        QUERY_HCA_CAP = 0x100;
        /// Reads the adapter's vendor data.
        QUERY_ADAPTER = 0x101;
        /// Starts the function.
        INIT_HCA = 0x102;
        /// Stops the function.
        TEARDOWN_HCA = 0x103;
        /// Enables the function: the first command.
        ENABLE_HCA = 0x104;
        /// Disables the function: the last command.
        DISABLE_HCA = 0x105;
        /// Reads how many pages the firmware wants.
        QUERY_PAGES = 0x107;
        /// Gives pages to the firmware or takes them back.
        MANAGE_PAGES = 0x108;
        /// Sets a page of capabilities.
        SET_HCA_CAP = 0x109;
        /// Reads which interface revisions the firmware speaks.
        QUERY_ISSI = 0x10a;
        /// Chooses the interface revision.
        SET_ISSI = 0x10b;
        /// Tells the firmware the driver's name and version.
        SET_DRIVER_VERSION = 0x10d;
        /// Reads an SF partition.
        QUERY_SF_PARTITION = 0x111;
        /// Allocates an SF.
        ALLOC_SF = 0x113;
        /// Frees an SF.
        DEALLOC_SF = 0x114;
        /// Suspends a VHCA.
        SUSPEND_VHCA = 0x115;
        /// Resumes a VHCA.
        RESUME_VHCA = 0x116;
        /// Reads the migration state of a VHCA.
        QUERY_VHCA_MIGRATION_STATE = 0x117;
        /// Saves the state of a VHCA.
        SAVE_VHCA_STATE = 0x118;
        /// Loads the state of a VHCA.
        LOAD_VHCA_STATE = 0x119;
        /// Creates an mkey.
        CREATE_MKEY = 0x200;
        /// Reads an mkey.
        QUERY_MKEY = 0x201;
        /// Destroys an mkey.
        DESTROY_MKEY = 0x202;
        /// Reads the reserved memory keys.
        QUERY_SPECIAL_CONTEXTS = 0x203;
        /// Ends a page fault.
        PAGE_FAULT_RESUME = 0x204;
        /// Allocates device memory.
        ALLOC_MEMIC = 0x205;
        /// Frees device memory.
        DEALLOC_MEMIC = 0x206;
        /// Changes device memory.
        MODIFY_MEMIC = 0x207;
        /// Creates an EQ.
        CREATE_EQ = 0x301;
        /// Destroys an EQ.
        DESTROY_EQ = 0x302;
        /// Reads an EQ.
        QUERY_EQ = 0x303;
        /// Generates an event queue entry.
        GEN_EQE = 0x304;
        /// Creates a CQ.
        CREATE_CQ = 0x400;
        /// Destroys a CQ.
        DESTROY_CQ = 0x401;
        /// Reads a CQ.
        QUERY_CQ = 0x402;
        /// Changes a CQ.
        MODIFY_CQ = 0x403;
        /// Creates a QP.
        CREATE_QP = 0x500;
        /// Destroys a QP.
        DESTROY_QP = 0x501;
        /// Moves a QP from reset to initialised.
        RST2INIT_QP = 0x502;
        /// Moves a QP from initialised to ready to receive.
        INIT2RTR_QP = 0x503;
        /// Moves a QP from ready to receive to ready to send.
        RTR2RTS_QP = 0x504;
        /// Changes a QP that is ready to send.
        RTS2RTS_QP = 0x505;
        /// Moves a QP from send queue error back to ready to send.
        SQERR2RTS_QP = 0x506;
        /// Moves a QP to the error state.
        QP_2ERR as "2ERR_QP" = 0x507;
        /// Moves a QP to the reset state.
        QP_2RST as "2RST_QP" = 0x50a;
        /// Reads a QP.
        QUERY_QP = 0x50b;
        /// Moves a QP from send queue drained to ready to send.
        SQD2RTS_QP = 0x50c;
        /// Passes a management datagram to the firmware.
        MAD_IFC = 0x50d;
        /// Changes a QP that is initialised.
        INIT2INIT_QP = 0x50e;
        /// Suspends a QP.
        SUSPEND_QP = 0x50f;
        /// Resumes a QP.
        RESUME_QP = 0x510;
        /// Creates a PSV.
        CREATE_PSV = 0x600;
        /// Destroys a PSV.
        DESTROY_PSV = 0x601;
        /// Creates an SRQ.
        CREATE_SRQ = 0x700;
        /// Destroys an SRQ.
        DESTROY_SRQ = 0x701;
        /// Reads an SRQ.
        QUERY_SRQ = 0x702;
        /// Asks for an event when a shared receive queue runs low.
        ARM_RQ = 0x703;
        /// Creates an XRC SRQ.
        CREATE_XRC_SRQ = 0x705;
        /// Destroys an XRC SRQ.
        DESTROY_XRC_SRQ = 0x706;
        /// Reads an XRC SRQ.
        QUERY_XRC_SRQ = 0x707;
        /// Arms an XRC SRQ.
        ARM_XRC_SRQ = 0x708;
        /// Creates a DCT.
        CREATE_DCT = 0x710;
        /// Destroys a DCT.
        DESTROY_DCT = 0x711;
        /// Drains a DCT.
        DRAIN_DCT = 0x712;
        /// Reads a DCT.
        QUERY_DCT = 0x713;
        /// Asks for an event on the next access key violation of a DCT.
        ARM_DCT_FOR_KEY_VIOLATION = 0x714;
        /// Creates an XRQ.
        CREATE_XRQ = 0x717;
        /// Destroys an XRQ.
        DESTROY_XRQ = 0x718;
        /// Reads an XRQ.
        QUERY_XRQ = 0x719;
        /// Arms an XRQ.
        ARM_XRQ = 0x71a;
        /// Reads the DC parameters entry.
        QUERY_XRQ_DC_PARAMS_ENTRY = 0x725;
        /// Sets a DC parameters entry of an XRQ.
        SET_XRQ_DC_PARAMS_ENTRY = 0x726;
        /// Reads XRQ error parameters.
        QUERY_XRQ_ERROR_PARAMS = 0x727;
        /// Releases an XRQ error.
        RELEASE_XRQ_ERROR = 0x729;
        /// Changes an XRQ.
        MODIFY_XRQ = 0x72a;
        /// Reads the delegated VHCA.
        QUERY_DELEGATED_VHCA = 0x732;
        /// Creates an ESW vport.
        CREATE_ESW_VPORT = 0x733;
        /// Destroys an ESW vport.
        DESTROY_ESW_VPORT = 0x734;
        /// Reads ESW functions.
        QUERY_ESW_FUNCTIONS = 0x740;
        /// Reads the state of a vport.
        QUERY_VPORT_STATE = 0x750;
        /// Changes the state of a vport.
        MODIFY_VPORT_STATE = 0x751;
        /// Reads an ESW vport context.
        QUERY_ESW_VPORT_CONTEXT = 0x752;
        /// Changes an ESW vport context.
        MODIFY_ESW_VPORT_CONTEXT = 0x753;
        /// Reads a NIC vport context.
        QUERY_NIC_VPORT_CONTEXT = 0x754;
        /// Changes a NIC vport context.
        MODIFY_NIC_VPORT_CONTEXT = 0x755;
        /// Reads a RoCE address.
        QUERY_ROCE_ADDRESS = 0x760;
        /// Sets a RoCE address.
        SET_ROCE_ADDRESS = 0x761;
        /// Reads an HCA vport context.
        QUERY_HCA_VPORT_CONTEXT = 0x762;
        /// Changes an HCA vport context.
        MODIFY_HCA_VPORT_CONTEXT = 0x763;
        /// Reads an HCA vport GID table.
        QUERY_HCA_VPORT_GID = 0x764;
        /// Reads an HCA vport P_Key table.
        QUERY_HCA_VPORT_PKEY = 0x765;
        /// Reads diagnostic counters of a vport.
        QUERY_VNIC_ENV = 0x76f;
        /// Reads the counters of a vport.
        QUERY_VPORT_COUNTER = 0x770;
        /// Allocates a queue counter set.
        ALLOC_Q_COUNTER = 0x771;
        /// Frees a queue counter set.
        DEALLOC_Q_COUNTER = 0x772;
        /// Reads a queue counter set.
        QUERY_Q_COUNTER = 0x773;
        /// Sets a monitor counter.
        SET_MONITOR_COUNTER = 0x774;
        /// Arms a monitor counter.
        ARM_MONITOR_COUNTER = 0x775;
        /// Sets a packet pacing rate.
        SET_PP_RATE_LIMIT = 0x780;
        /// Reads a packet pacing rate.
        QUERY_RATE_LIMIT = 0x781;
        /// Creates a scheduling element.
        CREATE_SCHEDULING_ELEMENT = 0x782;
        /// Destroys a scheduling element.
        DESTROY_SCHEDULING_ELEMENT = 0x783;
        /// Reads a scheduling element.
        QUERY_SCHEDULING_ELEMENT = 0x784;
        /// Changes a scheduling element.
        MODIFY_SCHEDULING_ELEMENT = 0x785;
        /// Creates a quality of service parameter set of a vport.
        CREATE_QOS_PARA_VPORT = 0x786;
        /// Destroys a quality of service parameter set of a vport.
        DESTROY_QOS_PARA_VPORT = 0x787;
        /// Allocates a PD.
        ALLOC_PD = 0x800;
        /// Frees a PD.
        DEALLOC_PD = 0x801;
        /// Allocates a UAR.
        ALLOC_UAR = 0x802;
        /// Frees a UAR.
        DEALLOC_UAR = 0x803;
        /// Configures the interrupt moderation.
        CONFIG_INT_MODERATION = 0x804;
        /// Reads or writes a register.
        ACCESS_REG = 0x805;
        /// Attaches a QP to a multicast group.
        ATTACH_TO_MCG = 0x806;
        /// Detaches a QP from a multicast group.
        DETACH_FROM_MCG = 0x807;
        /// Reads a dropped packet log.
        GET_DROPPED_PACKET_LOG = 0x80a;
        /// Reads a MAD demultiplexing mode.
        QUERY_MAD_DEMUX = 0x80b;
        /// Sets a MAD demultiplexing mode.
        SET_MAD_DEMUX = 0x80c;
        /// Does nothing.
        NOP = 0x80d;
        /// Allocates an XRCD.
        ALLOC_XRCD = 0x80e;
        /// Frees an XRCD.
        DEALLOC_XRCD = 0x80f;
        /// Allocates a transport domain.
        ALLOC_TRANSPORT_DOMAIN = 0x816;
        /// Frees a transport domain.
        DEALLOC_TRANSPORT_DOMAIN = 0x817;
        /// Reads congestion status.
        QUERY_CONG_STATUS = 0x822;
        /// Changes congestion status.
        MODIFY_CONG_STATUS = 0x823;
        /// Reads congestion control parameters.
        QUERY_CONG_PARAMS = 0x824;
        /// Changes congestion control parameters.
        MODIFY_CONG_PARAMS = 0x825;
        /// Reads congestion statistics.
        QUERY_CONG_STATISTICS = 0x826;
        /// Adds a VXLAN UDP destination port.
        ADD_VXLAN_UDP_DPORT = 0x827;
        /// Deletes a VXLAN UDP destination port.
        DELETE_VXLAN_UDP_DPORT = 0x828;
        /// Sets an L2 table entry.
        SET_L2_TABLE_ENTRY = 0x829;
        /// Reads an L2 table entry.
        QUERY_L2_TABLE_ENTRY = 0x82a;
        /// Deletes an L2 table entry.
        DELETE_L2_TABLE_ENTRY = 0x82b;
        /// Sets a wake-on-LAN and reboot-on-LAN setting.
        SET_WOL_ROL = 0x830;
        /// Reads a wake-on-LAN and reboot-on-LAN setting.
        QUERY_WOL_ROL = 0x831;
        /// Creates a LAG.
        CREATE_LAG = 0x840;
        /// Changes a LAG.
        MODIFY_LAG = 0x841;
        /// Reads a LAG.
        QUERY_LAG = 0x842;
        /// Destroys a LAG.
        DESTROY_LAG = 0x843;
        /// Creates a vport LAG.
        CREATE_VPORT_LAG = 0x844;
        /// Destroys a vport LAG.
        DESTROY_VPORT_LAG = 0x845;
        /// Creates a TIR.
        CREATE_TIR = 0x900;
        /// Changes a TIR.
        MODIFY_TIR = 0x901;
        /// Destroys a TIR.
        DESTROY_TIR = 0x902;
        /// Reads a TIR.
        QUERY_TIR = 0x903;
        /// Creates an SQ.
        CREATE_SQ = 0x904;
        /// Changes an SQ.
        MODIFY_SQ = 0x905;
        /// Destroys an SQ.
        DESTROY_SQ = 0x906;
        /// Reads an SQ.
        QUERY_SQ = 0x907;
        /// Creates an RQ.
        CREATE_RQ = 0x908;
        /// Changes an RQ.
        MODIFY_RQ = 0x909;
        /// Destroys an RQ.
        DESTROY_RQ = 0x90a;
        /// Reads an RQ.
        QUERY_RQ = 0x90b;
        /// Creates an RMP.
        CREATE_RMP = 0x90c;
        /// Changes an RMP.
        MODIFY_RMP = 0x90d;
        /// Destroys an RMP.
        DESTROY_RMP = 0x90e;
        /// Reads an RMP.
        QUERY_RMP = 0x90f;
        /// Sets delay drop parameters.
        SET_DELAY_DROP_PARAMS = 0x910;
        /// Creates a TIS.
        CREATE_TIS = 0x912;
        /// Changes a TIS.
        MODIFY_TIS = 0x913;
        /// Destroys a TIS.
        DESTROY_TIS = 0x914;
        /// Reads a TIS.
        QUERY_TIS = 0x915;
        /// Creates an RQT.
        CREATE_RQT = 0x916;
        /// Changes an RQT.
        MODIFY_RQT = 0x917;
        /// Destroys an RQT.
        DESTROY_RQT = 0x918;
        /// Reads an RQT.
        QUERY_RQT = 0x919;
        /// Makes a flow table the root.
        SET_FLOW_TABLE_ROOT = 0x92f;
        /// Creates a flow table.
        CREATE_FLOW_TABLE = 0x930;
        /// Destroys a flow table.
        DESTROY_FLOW_TABLE = 0x931;
        /// Reads a flow table.
        QUERY_FLOW_TABLE = 0x932;
        /// Creates a flow group.
        CREATE_FLOW_GROUP = 0x933;
        /// Destroys a flow group.
        DESTROY_FLOW_GROUP = 0x934;
        /// Reads a flow group.
        QUERY_FLOW_GROUP = 0x935;
        /// Sets a flow table entry.
        SET_FLOW_TABLE_ENTRY = 0x936;
        /// Reads a flow table entry.
        QUERY_FLOW_TABLE_ENTRY = 0x937;
        /// Deletes a flow table entry.
        DELETE_FLOW_TABLE_ENTRY = 0x938;
        /// Allocates a flow counter.
        ALLOC_FLOW_COUNTER = 0x939;
        /// Frees a flow counter.
        DEALLOC_FLOW_COUNTER = 0x93a;
        /// Reads a flow counter.
        QUERY_FLOW_COUNTER = 0x93b;
        /// Changes a flow table.
        MODIFY_FLOW_TABLE = 0x93c;
        /// Allocates a packet reformat context.
        ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d;
        /// Frees a packet reformat context.
        DEALLOC_PACKET_REFORMAT_CONTEXT = 0x93e;
        /// Reads a packet reformat context.
        QUERY_PACKET_REFORMAT_CONTEXT = 0x93f;
        /// Allocates a modify header context.
        ALLOC_MODIFY_HEADER_CONTEXT = 0x940;
        /// Frees a modify header context.
        DEALLOC_MODIFY_HEADER_CONTEXT = 0x941;
        /// Reads a modify header context.
        QUERY_MODIFY_HEADER_CONTEXT = 0x942;
        /// Creates a QP of the FPGA.
        FPGA_CREATE_QP = 0x960;
        /// Changes a QP of the FPGA.
        FPGA_MODIFY_QP = 0x961;
        /// Reads a QP of the FPGA.
        FPGA_QUERY_QP = 0x962;
        /// Destroys a QP of the FPGA.
        FPGA_DESTROY_QP = 0x963;
        /// Reads QP counters of the FPGA.
        FPGA_QUERY_QP_COUNTERS = 0x964;
        /// Creates a general object.
        CREATE_GENERAL_OBJECT = 0xa00;
        /// Changes a general object.
        MODIFY_GENERAL_OBJECT = 0xa01;
        /// Reads a general object.
        QUERY_GENERAL_OBJECT = 0xa02;
        /// Destroys a general object.
        DESTROY_GENERAL_OBJECT = 0xa03;
        /// Creates a UCTX.
        CREATE_UCTX = 0xa04;
        /// Destroys a UCTX.
        DESTROY_UCTX = 0xa06;
        /// Creates a UMEM.
        CREATE_UMEM = 0xa08;
        /// Destroys a UMEM.
        DESTROY_UMEM = 0xa0a;
        /// Waits until steering changes are in force.
        SYNC_STEERING = 0xb00;
        /// Sets regular expression parameters.
        SET_REGEX_PARAMS = 0xb04;
        /// Reads regular expression parameters.
        QUERY_REGEX_PARAMS = 0xb05;
        /// Sets regular expression registers.
        SET_REGEX_REGISTERS = 0xb06;
        /// Reads regular expression registers.
        QUERY_REGEX_REGISTERS = 0xb07;
        /// Reads or writes a register on behalf of a user context.
        ACCESS_REGISTER_USER = 0xb0c;
        /// Reads the state of a VHCA.
        QUERY_VHCA_STATE = 0xb0d;
        /// Changes the state of a VHCA.
        MODIFY_VHCA_STATE = 0xb0e;
        /// Generates security parameter indices for PSP.
        PSP_GEN_SPI = 0xb10;
        /// Replaces the PSP device key.
        PSP_ROTATE_KEY = 0xb11;
        /// Waits until changes of encryption keys are in force.
        SYNC_CRYPTO = 0xb12;
        /// Reads match sample information.
        QUERY_MATCH_SAMPLE_INFO = 0xb13;
        /// Lets another function reach an object.
        ALLOW_OTHER_VHCA_ACCESS = 0xb16;
        /// Posts a work queue entry through the firmware.
        GENERATE_WQE = 0xb17;
        /// Reads the vendor unique identifiers of functions.
        QUERY_VUID = 0xb22;
    }
}
