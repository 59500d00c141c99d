//! What the functions are called: the device ids of Linux's `mlx5_core` (drivers/net/ethernet/mellanox/mlx5/core/main.c), without
//! Connect-IB, whose completions this driver does not read.

/// Vendor id of Mellanox, now NVIDIA.
pub const VENDOR: u16 = 0x15b3;

/// Device ids, in order, with the names that people know.
const NAMES: [(u16, &str); 23] = [
    (0x1013, "ConnectX-4"),
    (0x1014, "ConnectX-4 VF"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1016, "ConnectX-4 Lx VF"),
    (0x1017, "ConnectX-5"),
    (0x1018, "ConnectX-5 VF"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101a, "ConnectX-5 Ex VF"),
    (0x101b, "ConnectX-6"),
    (0x101c, "ConnectX-6 VF"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101e, "ConnectX VF"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0x1025, "ConnectX-9"),
    (0x1027, "ConnectX-10"),
    (0x2101, "ConnectX-10 NVLink-C2C"),
    (0xa2d2, "BlueField ConnectX-5"),
    (0xa2d3, "BlueField ConnectX-5 VF"),
    (0xa2d6, "BlueField-2 ConnectX-6 Dx"),
    (0xa2dc, "BlueField-3 ConnectX-7"),
    (0xa2df, "BlueField-4 ConnectX-8"),
];

/// The name of an mlx5 function; `None` for everything else.
pub fn name(vendor: u16, device: u16) -> Option<&'static str> {
    let found = NAMES.binary_search_by_key(&device, |&(id, _)| id).ok()?;
    (vendor == VENDOR).then(|| NAMES[found].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_names_that_linux_gives_them_and_foreign_ones_have_none() {
        for (vendor, device, expected) in [
            (0x15b3, 0x1017, Some("ConnectX-5")),
            (0x15b3, 0x1018, Some("ConnectX-5 VF")),
            (0x15b3, 0x101e, Some("ConnectX VF")),
            (0x15b3, 0xa2dc, Some("BlueField-3 ConnectX-7")),
            // ConnectX-3 belongs to mlx4; 0xc2d3 is BlueField-2's management function; 0x1234:0x11e8 is QEMU's edu.
            (0x15b3, 0x1003, None),
            (0x15b3, 0xc2d3, None),
            (0x1234, 0x11e8, None),
            (0x1234, 0x1017, None),
        ] {
            assert_eq!(name(vendor, device), expected, "{vendor:04x}:{device:04x}");
        }
        assert!(NAMES.is_sorted_by_key(|&(id, _)| id), "the search needs them in order");
    }
}
