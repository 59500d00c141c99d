//! Where a PCI function is: domain, bus, device, function.

use std::fmt;
use std::str::FromStr;

/// Address of a PCI function, as `lspci -D` prints it: `0000:03:00.1`. The domain may be left out when reading one: it is 0 then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for Bdf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (front, function) = text.rsplit_once('.')?;
            let (front, device) = front.rsplit_once(':')?;
            let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
            let hex = |digits: &str, most: u32| {
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                u32::from_str_radix(digits, 16).ok().filter(|&n| plain && n <= most)
            };
            Some(Self {
                domain: hex(domain, u32::MAX)?,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 31)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().ok_or_else(|| format!("'{text}' is no PCI address; they look like 0000:03:00.0 (see `mlx5 list`)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_domain_and_printed_with_it() {
        for (text, printed) in [
            ("0000:03:00.0", "0000:03:00.0"),
            ("03:00.1", "0000:03:00.1"),
            ("10000:e1:1f.7", "10000:e1:1f.7"),
            ("0001:FF:0a.3", "0001:ff:0a.3"),
        ] {
            assert_eq!(text.parse::<Bdf>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", "03:00", "03:00.8", "03:20.0", "100:00.0", ":03:00.0", "0000:03:00.", "0000:+3:00.0", "x:03:00.0"]
        {
            assert!(text.parse::<Bdf>().is_err(), "{text}");
        }
    }
}
