//! Calls that block while the device dies or is reset: each must end by itself, soon, with a typed error.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{process, thread};

use mlx5::{CompChannel, Device, Error, ibv};

use crate::pair::{Pair, Waiting};
use crate::target::Target;
use crate::{Result, say, vectors};

/// A call has begun to wait by then.
const BEGUN: Duration = Duration::from_millis(300);
/// A call that lasts longer does not end by itself.
const LONGEST: Duration = Duration::from_secs(30);

/// What blocks. Those that wait for a command need a device on which it has no answer: its name stands behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Call {
    /// Opening the device: INIT_HCA
    Open,
    /// Asking a queue pair for its attributes: QUERY_QP
    Command,
    /// Destroying a queue pair: DESTROY_QP
    Destroy,
    /// Dropping a queue pair: DESTROY_QP
    DropObject,
    /// Deregistering memory: DESTROY_MKEY
    Dereg,
    /// Resizing a completion queue: MODIFY_CQ
    Resize,
    /// Closing the device: TEARDOWN_HCA
    Close,
    /// Dropping the device: TEARDOWN_HCA
    DropDevice,
    /// Waiting for a completion
    CqWait,
    /// Waiting for an event of a channel
    GetEvent,
    /// Waiting for an asynchronous event
    AsyncEvent,
    /// All of these at once, on threads: completion, two events on one vector, asynchronous event, command: QUERY_QP
    All,
    /// Messages, asleep until each completes
    Traffic,
}

impl Call {
    /// The command that has no answer.
    const fn stalled(self) -> Option<&'static str> {
        match self {
            Self::Open => Some("INIT_HCA"),
            Self::Command | Self::All => Some("QUERY_QP"),
            Self::Destroy | Self::DropObject => Some("DESTROY_QP"),
            Self::Dereg => Some("DESTROY_MKEY"),
            Self::Resize => Some("MODIFY_CQ"),
            Self::Close | Self::DropDevice => Some("TEARDOWN_HCA"),
            Self::CqWait | Self::GetEvent | Self::AsyncEvent | Self::Traffic => None,
        }
    }

    fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How a call ended, and when.
struct End {
    call: String,
    error: Option<Error>,
    at: Instant,
}

impl End {
    fn of<T>(call: impl Into<String>, result: Result<T, Error>) -> Self {
        Self { call: call.into(), error: result.err(), at: Instant::now() }
    }

    fn of_drop<T>(call: impl Into<String>, value: T) -> Self {
        drop(value);
        Self::of(call, Ok(()))
    }
}

/// The function leaves while a call blocks.
pub fn gone(target: &Target, call: Call) -> Result<()> {
    during("gone", target, call, || target.remove())
}

/// The function is reset by somebody else while a call blocks; then it is opened again, and messages arrive.
pub fn reset(target: &Target, call: Call) -> Result<()> {
    during("reset", target, call, || {
        if let Err(error) = target.reset_by_another() {
            say("failed", &error.to_string());
        }
    })?;
    target.reset()?;
    let device = target.device()?;
    let mut pair = Pair::new(&device, [0, 0])?;
    // The vector of all that is no completion comes first.
    let raised = || -> Result<u64> { Ok(target.interrupts()?.iter().skip(1).sum()) };
    let before = raised()?;
    // Events are asked for before a message is sent: who asks afterwards may find its completion there already.
    (0..20).try_for_each(|n| vectors::one_each(&device, &mut pair, n).map(|_| ()))?;
    let interrupts = raised()? - before;
    pair.close()?;
    ibv::close_device(device).map_err(|e| e.error)?;
    say("reset", &format!("call={} messages=20 interrupts={interrupts}", call.name()));
    Ok(())
}

/// Makes the call, strikes the device when it blocks, and tells how it ended; then what later calls say and how long
/// they take.
fn during(name: &str, target: &Target, call: Call, strike: impl Fn() + Send) -> Result<()> {
    if let Some(command) = call.stalled() {
        target.stall(command)?;
    }
    let up = if call == Call::Open { None } else { Some(up(target)?) };
    let (ended, ends) = mpsc::channel::<()>();
    let (struck, (results, left)) = thread::scope(|scope| {
        let striker = scope.spawn(move || {
            let Err(mpsc::RecvTimeoutError::Timeout) = ends.recv_timeout(BEGUN) else { return None };
            let at = Instant::now();
            say(name, &format!("struck call={}", call.name()));
            strike();
            if let Err(mpsc::RecvTimeoutError::Timeout) = ends.recv_timeout(LONGEST) {
                say("failed", &format!("{} still blocks, {} s later", call.name(), LONGEST.as_secs()));
                process::exit(1);
            }
            Some(at)
        });
        let results = block(target, call, up);
        drop(ended);
        (striker.join().ok().flatten(), results)
    });
    let struck = struck.ok_or("the call ended before anything happened to the device")?;
    for end in &results {
        let us = end.at.saturating_duration_since(struck).as_micros();
        say(name, &format!("call={} us={us} {}", end.call, words(end.error)));
    }
    if let Some((pair, device)) = left {
        after(name, call, pair, device);
    }
    // The end of this process may take Linux a minute, in which it waits for the function to come back.
    say(name, &format!("done call={}", call.name()));
    Ok(())
}

/// An error as the lab reads it: its kind, its number, its sentence.
fn words(error: Option<Error>) -> String {
    let Some(error) = error else { return "error=none".into() };
    let kind = match error {
        Error::Failed { why, .. } => format!("{why:?}"),
        Error::Timeout { .. } => "Timeout".into(),
        other => format!("{other:?}").split([' ', '{', '(']).next().unwrap_or("").into(),
    };
    format!("error={kind} errno={} text={error}", error.errno())
}

type Up = (Option<Pair>, Device);

/// A device with a pair, over which messages went.
fn up(target: &Target) -> Result<Up> {
    let device = target.device()?;
    let mut pair = Pair::new(&device, [0, 1])?;
    (0..4).try_for_each(|n| pair.exchange(&device, n, Waiting::Sleeping))?;
    Ok((Some(pair), device))
}

/// Makes the call; how it ended, and what is left.
fn block(target: &Target, call: Call, up: Option<Up>) -> (Vec<End>, Option<Up>) {
    let name = call.name();
    let Some((Some(mut pair), device)) = up else { return (vec![End::of(name, target.device())], None) };
    let result = match call {
        Call::Open => Ok(()),
        Call::Command => ibv::query_qp(&pair.qp[0]).map(|_| ()),
        Call::Resize => ibv::resize_cq(&mut pair.cq[0], 64),
        Call::CqWait => pair.cq[0].wait(u64::MAX),
        Call::GetEvent => events(&pair.channel),
        Call::AsyncEvent => asynchronous(&device),
        Call::All => return (all(&device, &mut pair), Some((Some(pair), device))),
        Call::Traffic => endless(&device, &mut pair),
        Call::Destroy | Call::DropObject | Call::Dereg | Call::Close | Call::DropDevice => {
            return taken(call, pair, device);
        }
    };
    (vec![End::of(name, result)], Some((Some(pair), device)))
}

/// Calls that take what they end.
fn taken(call: Call, pair: Pair, device: Device) -> (Vec<End>, Option<Up>) {
    let name = call.name();
    let end = match call {
        Call::Destroy | Call::DropObject => {
            let Pair { qp: [qp, other], .. } = pair;
            let end = match call {
                Call::Destroy => End::of(name, ibv::destroy_qp(qp).map_err(|e| e.error)),
                _ => End::of_drop(name, qp),
            };
            drop(other);
            end
        }
        Call::Dereg => {
            let Pair { buf: [buf, _], .. } = pair;
            End::of(name, buf.dereg().map_err(|e| e.error))
        }
        _ => {
            let closed = pair.close();
            if let Err(error) = closed {
                say("failed", &error.to_string());
            }
            return match call {
                Call::Close => (vec![End::of(name, ibv::close_device(device).map_err(|e| e.error))], None),
                _ => (vec![End::of_drop(name, device)], None),
            };
        }
    };
    (vec![end], Some((None, device)))
}

/// Waits for asynchronous events; the device's end is one itself.
fn asynchronous(device: &Device) -> Result<(), Error> {
    loop {
        let event = ibv::get_async_event(device, u64::MAX)?;
        say("event", &event.to_string());
    }
}

/// Waits for events of a channel; some of the first messages may be left.
fn events(channel: &CompChannel) -> Result<(), Error> {
    loop {
        ibv::get_cq_event(channel, u64::MAX)?;
    }
}

fn endless(device: &Device, pair: &mut Pair) -> Result<(), Error> {
    for n in 4.. {
        if let Err(error) = pair.exchange(device, n, Waiting::Sleeping) {
            return Err(error.downcast_ref::<Error>().copied().unwrap_or(Error::Protocol { what: "no typed error" }));
        }
    }
    Ok(())
}

/// All that can wait, at once.
fn all(device: &Device, pair: &mut Pair) -> Vec<End> {
    let Pair { qp, cq: [cq, _], channel, .. } = pair;
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| End::of("all:cq-wait", cq.wait(u64::MAX))),
            scope.spawn(|| End::of("all:get-event", events(channel))),
            scope.spawn(|| End::of("all:get-event-too", events(channel))),
            scope.spawn(|| End::of("all:async-event", asynchronous(device))),
            scope.spawn(|| End::of("all:command", ibv::query_qp(&qp[0]).map(|_| ()))),
        ];
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// What a device that has failed says to the next call, and how long it takes to end everything.
fn after(name: &str, call: Call, pair: Option<Pair>, device: Device) {
    let started = Instant::now();
    let next = ibv::alloc_pd(&device).err();
    let next_us = started.elapsed().as_micros();
    drop(pair);
    let closed = ibv::close_device(device);
    let close_us = started.elapsed().as_micros();
    let failure = closed.as_ref().err().and_then(|returned| returned.object.failure());
    say(
        name,
        &format!("after={} next_us={next_us} close_us={close_us} failure={failure:?} {}", call.name(), words(next)),
    );
}
