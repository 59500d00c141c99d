//! Faults as text.

use mlx5_model::{DataFault, Effect, Fault, Match, opcode_named};

pub(super) const HELP: &str = "\
Something that goes wrong; may be given more than once.

To a command, which is named as in the PRM (CREATE_EQ), by opcode (0x301) or by its place
(#5); the next one of that name, or each with a * behind it (CREATE_EQ*):
  never:COMMAND                    it never completes
  late:COMMAND=TIME                it completes that much later
  after-next:COMMAND               it completes after the next command
  status:COMMAND=STATUS[/SYNDROME] it is refused
  delivery:COMMAND=STATUS          it is not delivered
  event-lost:COMMAND               it completes without its event
  event-late:COMMAND=TIME          its event comes that much later
  pages:COMMAND=N                  firmware asks for N pages first (below 0: gives back)
  overtaken:COMMAND=N              it asks for N pages, completes after the next
  overlong:COMMAND                 it writes more output than was asked for
  removed:COMMAND                  the function is gone from then on: all ones
  health:COMMAND=SYNDROME[/SEVERITY[/reset]]
                                   the health buffer shows this from then on

To traffic, once, to the N-th message or completion from the start, counted from 1:
  corrupt:N[=OFFSET[/XOR]]         a byte of the message changes on the wire (the first with a payload, XOR 0x40)
  fail-send:N=SYNDROME[/VENDOR]    the message completes in error
  lost-message:N                   the message gets lost; only those of unreliable transports count
  lost-cqe:N                       the completion is not written
  bad-order:N                      the completion changes places with the next of its queue
  wrong-counter:N=ADD              the completion's WQE counter is off by ADD
  late-cqe:N=TIME                  the completion, and those behind it, come that much later

To the function, from the start:
  removed                          it is gone. QEMU (11.1) hangs at its start with such a function; there, use
                                   removed:COMMAND
  never-boots                      it never finishes booting
  counter-stuck                    its health counter stands still

TIME is a number with ns, us, ms or s; other numbers are decimal, or hexadecimal with 0x.";

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spec {
    /// With the function or a command.
    Device(Fault),
    /// With traffic, after so many messages or completions.
    Data(DataFault, u64),
}

/// Reads one fault.
pub(super) fn parse(text: &str) -> Result<Spec, String> {
    let Some((effect, rest)) = text.split_once(':') else { return on_function(text).map(Spec::Device) };
    if TRAFFIC.contains(&effect) {
        return on_traffic(effect, rest);
    }
    on_command(effect, rest).map(Spec::Device)
}

const TRAFFIC: [&str; 7] =
    ["corrupt", "fail-send", "lost-message", "lost-cqe", "bad-order", "wrong-counter", "late-cqe"];
/// How long a completion waits for the one that it changes places with, in nanoseconds.
const SWAP_NS: u64 = 1_000_000;

fn on_traffic(effect: &str, rest: &str) -> Result<Spec, String> {
    let (place, value) = rest.split_once('=').map_or((rest, None), |(place, value)| (place, Some(value)));
    let skip = number(place, u64::MAX)?.checked_sub(1).ok_or("places are counted from 1")?;
    let needed = || value.ok_or(format!("'{effect}' needs a value: {effect}:N=VALUE"));
    let fault = match effect {
        "lost-message" | "lost-cqe" | "bad-order" if value.is_some() => {
            return Err(format!("'{effect}' takes no value"));
        }
        "lost-message" => DataFault::LostMessage,
        "lost-cqe" => DataFault::LostCqe,
        "bad-order" => DataFault::SwappedCqe { ns: SWAP_NS },
        "wrong-counter" => DataFault::WrongCounter { add: number(needed()?, u16::MAX.into())? as u16 },
        "late-cqe" => DataFault::LateCqe { ns: time(needed()?)? },
        "fail-send" => {
            let (syndrome, vendor) = two_bytes(needed()?)?;
            DataFault::FailSend { syndrome, vendor }
        }
        _ => {
            let value = value.unwrap_or("0");
            let (offset, xor) = value.split_once('/').unwrap_or((value, "0x40"));
            DataFault::CorruptPayload { offset: number(offset, u64::MAX)?, xor: number(xor, u8::MAX.into())? as u8 }
        }
    };
    Ok(Spec::Data(fault, skip))
}

/// `A` or `A/B`, each a byte; B is 0 if it is not there.
fn two_bytes(text: &str) -> Result<(u8, u8), String> {
    let byte = |text| number(text, u8::MAX.into()).map(|value| value as u8);
    let (first, second) = text.split_once('/').unwrap_or((text, "0"));
    Ok((byte(first)?, byte(second)?))
}

fn on_function(text: &str) -> Result<Fault, String> {
    match text {
        "removed" => Ok(Fault::Removed),
        "never-boots" => Ok(Fault::NeverBoots),
        "counter-stuck" => Ok(Fault::CounterStuck),
        _ => Err("no such fault; --help lists them".into()),
    }
}

fn health(value: &str) -> Result<Effect, String> {
    let mut parts = value.split('/');
    let syndrome = number(parts.next().unwrap_or(""), u8::MAX.into())? as u8;
    let severity = parts.next().map_or(Ok(0), |text| number(text, 7))? as u8;
    let request_reset = match parts.next() {
        None => false,
        Some("reset") => true,
        Some(other) => return Err(format!("'{other}' is not 'reset'")),
    };
    if parts.next().is_some() {
        return Err("too many parts: health:COMMAND=SYNDROME[/SEVERITY[/reset]]".into());
    }
    Ok(Effect::Health { syndrome, severity, request_reset })
}

fn on_command(effect: &str, rest: &str) -> Result<Fault, String> {
    let (command, value) = match rest.split_once('=') {
        Some((command, value)) => (command, Some(value)),
        None => (rest, None),
    };
    let needed = || value.ok_or(format!("'{effect}' needs a value: {effect}:COMMAND=VALUE"));
    let effect = match effect {
        "never" | "after-next" | "event-lost" | "overlong" | "removed" if value.is_some() => {
            return Err(format!("'{effect}' takes no value"));
        }
        "never" => Effect::Never,
        "after-next" => Effect::AfterNext,
        "event-lost" => Effect::EventLost,
        "overlong" => Effect::Overlong,
        "removed" => Effect::Removed,
        "health" => health(needed()?)?,
        "overtaken" => Effect::Overtaken(pages(needed()?)?),
        "late" => Effect::Late(time(needed()?)?),
        "event-late" => Effect::EventLate(time(needed()?)?),
        "status" => status(needed()?)?,
        "delivery" => Effect::Delivery(number(needed()?, 0x7f)? as u8),
        "pages" => Effect::PageRequest(pages(needed()?)?),
        _ => return Err(format!("no fault '{effect}' of a command; --help lists them")),
    };
    Ok(Fault::Command { at: place(command)?, effect })
}

fn pages(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number of pages"))
}

fn place(command: &str) -> Result<Match, String> {
    if let Some(place) = command.strip_prefix('#') {
        return Ok(Match::Nth(number(place, u64::MAX)?));
    }
    let (name, every) = match command.strip_suffix('*') {
        Some(name) => (name, true),
        None => (command, false),
    };
    let opcode = match opcode_named(name) {
        Some(opcode) => opcode,
        None => number(name, u16::MAX.into()).map_err(|_| format!("no command '{name}'"))? as u16,
    };
    Ok(if every { Match::Every(opcode) } else { Match::Opcode(opcode) })
}

fn status(value: &str) -> Result<Effect, String> {
    let (status, syndrome) = match value.split_once('/') {
        Some((status, syndrome)) => (status, number(syndrome, u32::MAX.into())? as u32),
        None => (value, 0),
    };
    match number(status, u8::MAX.into())? as u8 {
        0 => Err("status 0 is success".into()),
        status => Ok(Effect::Status { status, syndrome }),
    }
}

fn number(text: &str, most: u64) -> Result<u64, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match value {
        Ok(value) if value <= most => Ok(value),
        _ => Err(format!("'{text}' is not a number from 0 to {most:#x}")),
    }
}

/// Nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let unit = units.iter().find_map(|(unit, ns)| text.strip_suffix(unit).map(|digits| (digits, *ns)));
    let value = unit.and_then(|(digits, ns)| digits.parse::<u64>().ok()?.checked_mul(ns));
    value.ok_or_else(|| format!("'{text}' is not a time: 50ms, 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_the_help_says() {
        let on = |at, effect| Ok(Spec::Device(Fault::Command { at, effect }));
        assert_eq!(parse("never:CREATE_EQ"), on(Match::Opcode(0x301), Effect::Never));
        assert_eq!(parse("never:0x301*"), on(Match::Every(0x301), Effect::Never));
        assert_eq!(parse("late:#5=50ms"), on(Match::Nth(5), Effect::Late(50_000_000)));
        assert_eq!(parse("status:ENABLE_HCA=3"), on(Match::Opcode(0x104), Effect::Status { status: 3, syndrome: 0 }));
        let refused = Effect::Status { status: 3, syndrome: 0x1234 };
        assert_eq!(parse("status:ENABLE_HCA=0x3/0x1234"), on(Match::Opcode(0x104), refused));
        assert_eq!(parse("delivery:INIT_HCA=1"), on(Match::Opcode(0x102), Effect::Delivery(1)));
        assert_eq!(parse("event-late:ALLOC_UAR=2s"), on(Match::Opcode(0x802), Effect::EventLate(2_000_000_000)));
        assert_eq!(parse("pages:ALLOC_PD=-4"), on(Match::Opcode(0x800), Effect::PageRequest(-4)));
        assert_eq!(parse("removed"), Ok(Spec::Device(Fault::Removed)));
        assert_eq!(parse("removed:INIT_HCA"), on(Match::Opcode(0x102), Effect::Removed));
        let health = Effect::Health { syndrome: 8, severity: 2, request_reset: true };
        assert_eq!(parse("health:INIT_HCA=0x8/2/reset"), on(Match::Opcode(0x102), health));
        let data = |fault, skip| Ok(Spec::Data(fault, skip));
        assert_eq!(parse("lost-cqe:1"), data(DataFault::LostCqe, 0));
        assert_eq!(parse("corrupt:3"), data(DataFault::CorruptPayload { offset: 0, xor: 0x40 }, 2));
        assert_eq!(parse("corrupt:3=7/0xff"), data(DataFault::CorruptPayload { offset: 7, xor: 0xff }, 2));
        assert_eq!(parse("fail-send:2=0x15/0x81"), data(DataFault::FailSend { syndrome: 0x15, vendor: 0x81 }, 1));
        assert_eq!(parse("late-cqe:2=3us"), data(DataFault::LateCqe { ns: 3000 }, 1));
        assert_eq!(parse("wrong-counter:1=5"), data(DataFault::WrongCounter { add: 5 }, 0));
    }

    #[test]
    fn what_is_no_fault_is_refused_with_a_reason() {
        for text in [
            "",
            "never",
            "never:",
            "never:NOTHING",
            "never:CREATE_EQ=1",
            "late:CREATE_EQ",
            "late:CREATE_EQ=5",
            "late:#x=5ms",
            "status:CREATE_EQ=0",
            "status:CREATE_EQ=256",
            "health=1",
            "health:#1=1/8",
            "health:#1=1/1/1",
            "gone",
            "x=1",
            "lost-cqe",
            "lost-cqe:0",
            "lost-cqe:1=2",
            "late-cqe:1",
            "fail-send:1",
            "fail-send:1=0x100",
            "corrupt:1=0/256",
            "late:CREATE_EQ=99999999999999999999s",
        ] {
            assert!(!parse(text).unwrap_err().is_empty(), "{text}");
        }
    }
}
