//! Operations of a reliable connection against causes of failure: what requester and responder are told, and the state that
//! both queue pairs are in then. `cargo test --test verbs the_whole_table -- --nocapture` prints the table.

mod causes;
mod rows;

use mlx5::hw::eqe::EventType;
use mlx5::{AsyncEvent, QpState, Wc, WcStatus};

use causes::Scene;
use rows::{FLUSHED, Peer, ROWS, Right};

/// What happened in a row.
struct Seen {
    /// The request under test, and the one behind it.
    requester: Vec<Wc>,
    /// Receives, in order.
    responder: Vec<Wc>,
    /// Asynchronous events about the responder's queue pair.
    events: Vec<EventType>,
    /// State of both queue pairs, as the device says.
    states: [QpState; 2],
}

/// Nanoseconds in which every retry of the rows is over.
const ALL_OVER: u64 = 2_000_000_000;

fn run(cause: &str, op: &str) -> Seen {
    let mut scene = Scene::new(cause, op);
    scene.post();
    let p = &mut scene.pair;
    let mut wcs = [Vec::new(), Vec::new()];
    for _ in 0..10 {
        p.port.model.step(ALL_OVER / 10);
        for (cq, wcs) in p.cq.iter_mut().zip(&mut wcs) {
            let mut new = [Wc::default(); 16];
            let n = cq.poll_cq(&mut new).expect("good entries");
            wcs.extend_from_slice(&new[..n]);
        }
    }
    p.dev.service();
    let mut events = Vec::new();
    while let Some(event) = p.dev.try_get_async_event() {
        let (event_type, qp) = match event {
            AsyncEvent::QpReqErr(qp) => (EventType::WQ_INVAL_REQ_ERROR, qp),
            AsyncEvent::QpAccessErr(qp) => (EventType::WQ_ACCESS_ERROR, qp),
            other => panic!("{cause} {op}: {other:?}"),
        };
        assert_eq!(qp.number, scene.responder, "{cause} {op}: {event:?}");
        events.push(event_type);
    }
    let states = [0, 1].map(|i| p.qp[i].query().expect("an answer").qp_state);
    scene.recover();
    let [requester, responder] = wcs;
    Seen { requester, responder, events, states }
}

/// What a row shows, in the columns of the table.
fn line(cause: &str, op: &str, seen: &Seen, right: &Right) -> String {
    let of = |wcs: &[Wc]| {
        let bad: Vec<_> = wcs.iter().filter(|wc| wc.status != WcStatus::SUCCESS).collect();
        let cause = bad.iter().find(|wc| wc.status != WcStatus::WR_FLUSH_ERR).or(bad.first());
        let text = cause.map_or("-".to_owned(), |wc| format!("{} {:#04x}", wc.status, wc.vendor_err));
        // The request itself succeeded, and the one behind it did not.
        if wcs.len() == 2 && bad.len() == 1 { format!("ok, then {text}") } else { text }
    };
    let events: Vec<_> = seen.events.iter().map(|e| e.name().unwrap_or("?")).collect();
    format!(
        "{cause:31} {op:10} {:29} {:21} {:18} {:4} {:5} {}",
        of(&seen.requester),
        of(&seen.responder),
        events.join(" "),
        format!("{:?}", seen.states[0]),
        format!("{:?}", seen.states[1]),
        right.source
    )
}

fn vendor_fits(wc: &Wc, known: &[u8]) -> bool {
    known.iter().any(|v| u32::from(*v) == wc.vendor_err)
}

/// All are flushed, with a vendor code that flushes have on real devices.
fn all_flushed(wcs: &[Wc]) -> bool {
    let flush = |wc: &Wc| wc.status == WcStatus::WR_FLUSH_ERR && vendor_fits(wc, FLUSHED);
    wcs.iter().all(flush)
}

/// What of a row is not right.
fn wrong(seen: &Seen, right: &Right) -> Option<&'static str> {
    let requester = match right.status {
        // Only the request behind it learns that the peer has failed: nobody answers any more.
        WcStatus::SUCCESS => match &seen.requester[..] {
            [first, behind] => {
                (first.wr_id, first.status, behind.status) == (1, WcStatus::SUCCESS, WcStatus::RETRY_EXC_ERR)
            }
            _ => false,
        },
        _ => fails(&seen.requester, right),
    };
    if !requester {
        return Some("what the requester is told");
    }
    if seen.states[0] != QpState::Err {
        return Some("the requester is in error");
    }
    (!peer_fits(seen, right.peer)).then_some("what the responder is told, and its state")
}

/// The request fails as is right, and what is behind it is flushed.
fn fails(told: &[Wc], right: &Right) -> bool {
    let before = told.iter().take_while(|wc| wc.status == WcStatus::SUCCESS).count();
    let [failed, behind @ ..] = &told[before..] else { return false };
    (failed.wr_id, failed.status) == (1, right.status)
        && vendor_fits(failed, right.vendor)
        && behind.last().is_some_and(|wc| wc.wr_id == 2)
        && all_flushed(behind)
}

fn peer_fits(seen: &Seen, right: Peer) -> bool {
    let (receives, state) = (&seen.responder[..], seen.states[1]);
    let first_fails = |fits: &dyn Fn(&Wc) -> bool| match receives {
        [first, second] => first.wr_id == 11 && fits(first) && all_flushed(&[*second]) && state == QpState::Err,
        _ => false,
    };
    match right {
        Peer::Untouched => receives.is_empty() && seen.events.is_empty() && state == QpState::Rts,
        Peer::Event(event) => {
            receives.len() == 2 && all_flushed(receives) && seen.events == [event] && state == QpState::Err
        }
        Peer::Completion(status, vendor) => first_fails(&|wc| wc.status == status && vendor_fits(wc, vendor)),
        Peer::Breaks => first_fails(&|wc| wc.status != WcStatus::SUCCESS),
        Peer::Silent => all_flushed(receives) && seen.events.is_empty(),
    }
}

/// The test of one row.
fn check(cause: &str, op: &str) {
    let right = ROWS.iter().find(|row| (row.0, row.1) == (cause, op)).expect("a row").2;
    let seen = run(cause, op);
    assert_eq!(
        wrong(&seen, &right),
        None,
        "\n{}\n{:?}\n{:?}",
        line(cause, op, &seen, &right),
        seen.requester,
        seen.responder
    );
}

#[test]
fn the_whole_table() {
    println!(
        "{:31} {:10} {:29} {:21} {:18} {:10} right by",
        "cause", "operation", "requester", "responder", "event", "states"
    );
    for (cause, op, right) in ROWS {
        let seen = run(cause, op);
        println!("{}", line(cause, op, &seen, right));
        assert_eq!(wrong(&seen, right), None);
    }
}
