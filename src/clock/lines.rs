//! What the free-running counter says as a time: pieces of straight lines, each going on where the one before ends, so that a later
//! time stamp never is an earlier time.

/// The bits of a time stamp that count (`completion_timestamp_mask`): it is compared modulo 2^63.
pub(crate) const MASK: u64 = u64::MAX >> 1;

/// Bits of a slope behind the point: over a year of a counter of 1 GHz they leave out 2 microseconds.
const FRACTION: u32 = 44;
/// Pieces that are kept.
const PIECES: usize = 3;
/// A difference from the time of day beyond which somebody has set it, in nanoseconds: NTP steps from 128 ms on.
const STEP: i128 = 100_000_000;
/// The part of a rate by which it may differ from the one that the firmware states, and by which a difference is made up for: 1/1024.
/// A frequency stated in MHz may be off by more ([`Follower::rounded_to`]).
const DEVIATION: u32 = 10;

/// Numbers of 64 bits that [`Lines`] are stored as.
pub(super) const WORDS: usize = 3 * PIECES + 1;

/// A moment: what the counter showed, and what time of day it was in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) ticks: u64,
    pub(super) ns: u64,
}

/// A straight line from a moment on: nanoseconds a tick, as a fixed-point number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    from: Moment,
    slope: u64,
}

impl Line {
    /// Ticks from its start to `ticks`; an error with those from `ticks` to its start, if that is nearer modulo 2^63.
    fn distance(&self, ticks: u64) -> Result<u64, u64> {
        let ahead = ticks.wrapping_sub(self.from.ticks) & MASK;
        if ahead <= MASK / 2 { Ok(ahead) } else { Err(self.from.ticks.wrapping_sub(ticks) & MASK) }
    }

    fn at(&self, ticks: u64) -> u64 {
        let length = |ticks: u64| {
            let ns = (u128::from(ticks) * u128::from(self.slope)) >> FRACTION;
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        match self.distance(ticks) {
            Ok(ahead) => self.from.ns.saturating_add(length(ahead)),
            Err(behind) => self.from.ns.saturating_sub(length(behind)),
        }
    }
}

/// `ns` nanoseconds in `ticks` ticks, as a slope.
fn slope(ns: u128, ticks: u64) -> u64 {
    let slope = (ns << FRACTION).checked_div(ticks.into());
    slope.and_then(|slope| u64::try_from(slope).ok()).unwrap_or(u64::MAX)
}

/// The last pieces, the newest last; slope 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    pieces: [Line; PIECES],
    /// Nanoseconds a tick on an average, for what lies before all pieces: these are a little steeper or flatter, each for its second.
    average: u64,
}

impl Lines {
    /// The time at which the counter showed `ticks`, in nanoseconds since 1970.
    pub(crate) fn at(&self, ticks: u64) -> u64 {
        let pieces = || self.pieces.iter().filter(|line| line.slope != 0);
        match pieces().rev().find(|line| line.distance(ticks).is_ok()) {
            Some(piece) => piece.at(ticks),
            None => Line { slope: self.average, ..pieces().next().copied().unwrap_or_default() }.at(ticks),
        }
    }

    /// Whether there is a line at all.
    pub(super) fn known(&self) -> bool {
        self.newest().slope != 0
    }

    /// Where the newest piece begins, and nanoseconds a tick as `mult` / 2^`shift`.
    pub(super) fn tangent(&self) -> (Moment, u32, u32) {
        let newest = self.newest();
        let excess = (u64::BITS - newest.slope.leading_zeros()).saturating_sub(u32::BITS);
        (newest.from, (newest.slope >> excess) as u32, FRACTION - excess)
    }

    fn newest(&self) -> &Line {
        let [.., newest] = &self.pieces;
        newest
    }

    fn push(&mut self, line: Line) {
        self.pieces.rotate_left(1);
        if let Some(last) = self.pieces.last_mut() {
            *last = line;
        }
    }

    pub(super) fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (three, line) in words.chunks_exact_mut(3).zip(&self.pieces) {
            three.copy_from_slice(&[line.from.ticks, line.from.ns, line.slope]);
        }
        words[3 * PIECES] = self.average;
        words
    }

    pub(super) fn from_words(words: &[u64; WORDS]) -> Self {
        let mut lines = Self { average: words[3 * PIECES], ..Self::default() };
        for (line, three) in lines.pieces.iter_mut().zip(words.chunks_exact(3)) {
            if let [ticks, ns, slope] = *three {
                *line = Line { from: Moment { ticks, ns }, slope };
            }
        }
        lines
    }
}

/// What makes the lines follow the time of day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follower {
    /// Ticks in a second, as the firmware states.
    second: u64,
    /// The first measurement since the time of day was set, and the last one.
    first: Moment,
    last: Moment,
    /// Nanoseconds a tick as measured last.
    rate: u64,
    /// The most by which that may differ from what the firmware states.
    most_off: u64,
}

impl Follower {
    /// Of a counter with `second` ticks in a second, not 0.
    pub(super) fn new(second: u64) -> Self {
        let rate = slope(1_000_000_000, second);
        Self { second, first: Moment::default(), last: Moment::default(), rate, most_off: rate >> DEVIATION }
    }

    /// The ticks in a second are stated as a number of `unit`, rounded up or down.
    pub(super) fn rounded_to(mut self, unit: u64) -> Self {
        let one = u128::from(self.rate) * u128::from(unit) / u128::from(self.second);
        let most = self.most_off.saturating_add(u64::try_from(one).unwrap_or(u64::MAX));
        // Whatever the firmware states, a clock does not stand still.
        self.most_off = most.min(self.rate / 2);
        self
    }

    /// How long the newest piece may be in use, in ticks: a second, and a little for clocks that differ.
    fn in_use(&self) -> u64 {
        self.second.saturating_add(self.second / 16)
    }

    /// The lines after a measurement.
    ///
    /// Up to a second behind the newest piece's start time stamps may have been told by it: there it goes on, and the new one begins at
    /// its end, a little steeper or flatter, so that it meets the time of day within a second. What lies further behind nobody was
    /// told of: there the line leads to what was measured, unless that is before what was told. A time of day that has been set is
    /// followed at once.
    pub(super) fn follow(&mut self, mut lines: Lines, moment: Moment) -> Lines {
        let newest = *lines.newest();
        let passed = newest.distance(moment.ticks);
        let Some(passed) = passed.ok().filter(|_| lines.known()) else {
            // The first one, or a counter that went back.
            *self = Self { first: moment, last: moment, most_off: self.most_off, ..Self::new(self.second) };
            let mut lines = Lines { average: self.rate, ..Lines::default() };
            lines.push(Line { from: moment, slope: self.rate });
            return lines;
        };
        self.measure(moment, passed);
        lines.average = self.between(self.first, moment).unwrap_or_else(|| {
            self.first = moment;
            self.rate
        });
        let told = newest.at(moment.ticks);
        let late = i128::from(moment.ns) - i128::from(told);
        if passed > self.in_use() && lines.lead_to(moment, passed, self.in_use()) {
            lines.push(Line { from: moment, slope: self.rate });
        } else if late.abs() > STEP {
            self.first = moment;
            lines.push(Line { from: moment, slope: self.rate });
        } else {
            lines.push(Line { from: Moment { ns: told, ..moment }, slope: self.steered(late) });
        }
        lines
    }

    /// Takes the rate between the last measurement and this one, unless they are too near one another or the time of day was set.
    fn measure(&mut self, moment: Moment, passed: u64) {
        if let Some(rate) = self.between(self.last, moment).filter(|_| passed >= self.second / 2) {
            self.rate = rate;
        }
        self.last = moment;
    }

    /// Nanoseconds a tick between two measurements, if that is near what the firmware states.
    fn between(&self, from: Moment, to: Moment) -> Option<u64> {
        let stated = slope(1_000_000_000, self.second);
        let rate = slope(to.ns.checked_sub(from.ns)?.into(), to.ticks.wrapping_sub(from.ticks) & MASK);
        (rate.abs_diff(stated) <= self.most_off).then_some(rate)
    }

    /// The slope that makes up for `late` nanoseconds within a second.
    fn steered(&self, late: i128) -> u64 {
        let most = self.rate >> DEVIATION;
        let more = slope(late.unsigned_abs(), self.second).min(most);
        if late < 0 { self.rate - more } else { self.rate.saturating_add(more) }
    }
}

impl Lines {
    /// Adds the piece from the end of what was in use to `moment`, `passed` ticks behind the newest piece's start. False, and none,
    /// if that moment is before what the newest piece says at its end.
    fn lead_to(&mut self, moment: Moment, passed: u64, in_use: u64) -> bool {
        let newest = self.newest();
        let ticks = newest.from.ticks.wrapping_add(in_use);
        let from = Moment { ticks, ns: newest.at(ticks) };
        let Some(rise) = moment.ns.checked_sub(from.ns).filter(|rise| *rise > 0) else { return false };
        self.push(Line { from, slope: slope(rise.into(), passed - in_use) });
        true
    }
}

#[cfg(test)]
mod tests;
