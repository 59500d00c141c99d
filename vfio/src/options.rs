//! What options about completion queues can say: formats, layouts, masks by name or number, capabilities.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use mlx5::{CreateCqFlags, WcFlags, dv};
use mlx5_model::{CapConfig, ModelConfig};

/// Format of compressed entries: what each has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compress {
    /// The packet's receive-side-scaling hash
    Hash,
    /// The packet's checksum
    Csum,
    /// Checksum and stride index
    CsumStridx,
    /// Flow tag and stride index
    FtagStridx,
    /// Types of the packet's headers and stride index
    L34hStridx,
}

/// Where compressed entries lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A full entry, then arrays of eight
    #[default]
    Basic,
    /// Blocks of up to seven behind a full entry
    Enhanced,
}

/// Size of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CqeSize {
    /// 64 bytes
    #[value(name = "64")]
    B64,
    /// 128 bytes: room for data, then the entry
    #[value(name = "128")]
    B128,
}

impl CqeSize {
    pub(crate) fn bytes(self) -> u16 {
        match self {
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }
}

/// The word of an option's value.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

impl Compress {
    /// The bit of `mlx5dv_cq_init_attr::cqe_comp_res_format`.
    pub(crate) fn bit(self) -> dv::CqeCompResFormat {
        match self {
            Self::Hash => dv::CqeCompResFormat::HASH,
            Self::Csum => dv::CqeCompResFormat::CSUM,
            Self::CsumStridx => dv::CqeCompResFormat::CSUM_STRIDX,
            Self::FtagStridx => dv::CqeCompResFormat::FTAG_STRIDX,
            Self::L34hStridx => dv::CqeCompResFormat::L34H_STRIDX,
        }
    }
}

/// A mask: names with commas between, or a number, decimal or hex.
fn mask(text: &str, names: &[&'static str], named: impl Fn(&str) -> Option<u64>) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(number) = number {
        return Ok(number);
    }
    text.split(',').filter(|name| !name.is_empty()).try_fold(0, |bits, name| {
        let bit = named(name).ok_or_else(|| {
            let known = names.iter().map(|n| option_name(n)).collect::<Vec<_>>().join(", ");
            format!("'{name}' is neither a number nor one of {known}")
        })?;
        Ok(bits | bit)
    })
}

/// A constant's name as a word on the command line, and back.
pub(crate) fn option_name(constant: &str) -> String {
    constant.to_ascii_lowercase().replace('_', "-")
}

fn constant_name(option: &str) -> String {
    option.to_ascii_uppercase().replace('-', "_")
}

/// A value of `--wc-flags`.
pub(crate) fn wc_flags(text: &str) -> Result<u64, String> {
    let single = WcFlags::all().iter_names().map(|(name, _)| name);
    let names: Vec<_> = ["STANDARD"].into_iter().chain(single).collect();
    mask(text, &names, |name| WcFlags::from_name(&constant_name(name)).map(|f| f.bits()))
}

/// A value of `--flags`.
pub(crate) fn create_flags(text: &str) -> Result<u32, String> {
    let names: Vec<_> = CreateCqFlags::all().iter_names().map(|(name, _)| name).collect();
    let bits = mask(text, &names, |name| CreateCqFlags::from_name(&constant_name(name)).map(|f| f.bits().into()))?;
    u32::try_from(bits).map_err(|_| "more than 32 bits".into())
}

/// A value of `--compress` where any mask is allowed.
pub(crate) fn formats(text: &str) -> Result<u8, String> {
    let names: Vec<_> = dv::CqeCompResFormat::all().iter_names().map(|(name, _)| name).collect();
    let bits =
        mask(text, &names, |name| dv::CqeCompResFormat::from_name(&constant_name(name)).map(|f| f.bits().into()))?;
    u8::try_from(bits).map_err(|_| "more than 8 bits".into())
}

/// A number, decimal or hex.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    let bits = mask(text, &[], |_| None).map_err(|_| "not a number".to_string())?;
    u32::try_from(bits).map_err(|_| "more than 32 bits".into())
}

/// What `--without` takes.
pub(crate) fn capabilities() -> PossibleValuesParser {
    PossibleValuesParser::new(CapConfig::names())
}

/// A model without some capabilities.
pub(crate) fn model_without(names: &[String], seed: u64) -> ModelConfig {
    let mut config = ModelConfig { seed, ..ModelConfig::default() };
    names.iter().for_each(|name| _ = config.caps.without(name));
    config
}
