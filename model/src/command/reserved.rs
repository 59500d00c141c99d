//! Reserved bits of each command's input: (first bit, bits), most significant bit of byte 0 first.
//!
//! They are what is left between the fields that the public headers name; uid and umem fields count as reserved, as this
//! function has no user contexts.

/// Ranges of bits that must be zero.
pub(crate) type Bits = &'static [(u16, u16)];

pub(crate) const HEADER_ONLY: Bits = &[(16, 32), (64, 64)];
pub(crate) const FUNCTION: Bits = &[(16, 32), (65, 2), (68, 12), (96, 32)];
pub(crate) const FUNCTION_EC: Bits = &[(16, 32), (66, 1), (68, 12)];
pub(crate) const VPORT: Bits = &[(16, 32), (65, 15), (96, 32)];
pub(crate) const HCA_VPORT: Bits = &[(16, 32), (65, 11), (96, 32)];
pub(crate) const HCA_VPORT_INDEX: Bits = &[(16, 32), (65, 11), (96, 16)];
pub(crate) const VALUE_16: Bits = &[(16, 32), (64, 16), (96, 32)];
pub(crate) const VALUE_24: Bits = &[(16, 32), (64, 8), (96, 32)];
pub(crate) const VALUE_8: Bits = &[(16, 32), (64, 24), (96, 32)];
pub(crate) const MANAGE_PAGES: Bits = &[(16, 32), (65, 15)];
pub(crate) const INIT_HCA: Bits = &[(16, 32), (64, 34), (112, 16)];
pub(crate) const ACCESS_REG: Bits = &[(16, 32), (64, 16)];
pub(crate) const QUERY_MKEY: Bits = &[(16, 32), (64, 8), (97, 31)];
pub(crate) const QUERY_NIC_VPORT: Bits = &[(16, 32), (65, 15), (96, 5), (104, 24)];
pub(crate) const SET_ROCE_ADDRESS: Bits = &[(16, 32), (80, 12), (96, 32), (256, 3), (320, 20), (352, 32)];

pub(crate) const CREATE_EQ: Bits = &[
    (16, 32),
    (64, 64),
    (132, 9),
    (143, 5),
    (152, 60),
    (218, 9),
    (256, 52),
    (320, 3),
    (328, 128),
    (480, 8),
    (512, 192),
    (960, 1216),
];

pub(crate) const CREATE_CQ: Bits = &[
    (16, 32),
    (64, 64),
    (134, 2),
    (140, 1),
    (153, 5),
    (160, 52),
    (218, 2),
    (224, 3),
    (256, 4),
    (288, 24),
    (320, 3),
    (328, 64),
    (416, 8),
    (448, 8),
    (480, 8),
    (544, 32),
    (640, 1536),
];

/// What is not selected is checked by the command.
pub(crate) const MODIFY_CQ: Bits = &[
    (16, 32),
    (64, 8),
    (134, 2),
    (140, 1),
    (153, 5),
    (160, 52),
    (218, 2),
    (224, 3),
    (256, 4),
    (288, 24),
    (320, 3),
    (328, 64),
    (416, 8),
    (448, 8),
    (480, 8),
    (544, 32),
    (640, 1536),
];

pub(crate) const CREATE_MKEY: Bits = &[
    (16, 32),
    (64, 32),
    (97, 1),
    (99, 30),
    (130, 1),
    (134, 7),
    (142, 1),
    (152, 2),
    (156, 4),
    (192, 32),
    (227, 2),
    (230, 1),
    (416, 96),
    (528, 16),
    (576, 22),
    (600, 1),
    (608, 3),
    (624, 144),
    (800, 1376),
];

pub(crate) const QP: Bits = &[
    (16, 32),
    (64, 8),
    (96, 32),
    (208, 2),
    (213, 1),
    (222, 2),
    (228, 1),
    (230, 1),
    (264, 1),
    (277, 1),
    (320, 8),
    (352, 3),
    (386, 14),
    (453, 3),
    (464, 4),
    (480, 4),
    (640, 4),
    (646, 1),
    (738, 14),
    (805, 3),
    (816, 4),
    (832, 4),
    (992, 4),
    (998, 1),
    (1092, 4),
    (1099, 2),
    (1107, 1),
    (1115, 21),
    (1152, 8),
    (1184, 3),
    (1216, 3),
    (1248, 40),
    (1312, 8),
    (1344, 8),
    (1355, 1),
    (1363, 1),
    (1370, 2),
    (1376, 3),
    (1408, 8),
    (1440, 8),
    (1568, 5),
    (1600, 8),
    (1728, 47),
    (1856, 320),
];

/// What only other kinds of work queue have (header split, hairpin, strides, headers in buffers of their own), and the counters,
/// which the device alone writes, count as reserved too.
pub(crate) const CREATE_RMP: Bits = &[
    (16, 32),
    (64, 192),
    (256, 8),
    (268, 20),
    (289, 351),
    (647, 36),
    (704, 8),
    (736, 8),
    (832, 76),
    (912, 3),
    (920, 3),
    (928, 1248),
];

pub(crate) const MODIFY_RMP: Bits = &[
    (16, 32),
    (68, 4),
    (96, 95),
    (192, 72),
    (268, 20),
    (289, 351),
    (647, 36),
    (704, 8),
    (736, 8),
    (832, 76),
    (912, 3),
    (920, 3),
    (928, 1248),
];

pub(crate) const MODIFY_NIC_VPORT: Bits = &[
    (16, 32),
    (65, 15),
    (96, 18),
    (115, 1),
    (118, 2),
    (127, 1926),
    (2056, 21),
    (2081, 26),
    (2113, 11),
    (2144, 161),
    (2308, 4),
    (2320, 32),
    (2368, 512),
    (2896, 1072),
    (3971, 2),
    (3976, 8),
    (4000, 16),
    (4064, 32),
];
