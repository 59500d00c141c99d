//! How long messages took: percentiles, and a histogram for people and programs.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Digits that a time keeps.
const DIGITS: u8 = 3;
/// Longest time that is told from longer ones, in nanoseconds: 292 years, which leaves room for the end of its row.
const LONGEST: u64 = i64::MAX as u64;
/// Where rows of the histogram begin, as parts of a decade: each row is about as wide as the one before, in proportion.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// Characters of the longest bar.
const BAR: u64 = 40;
/// The percentiles that are told, beside the least and the most: their names in text and in JSON.
const PERCENTILES: [(f64, &str, &str); 4] =
    [(0.5, "50%", "p50_ns"), (0.9, "90%", "p90_ns"), (0.99, "99%", "p99_ns"), (0.999, "99.9%", "p99_9_ns")];

/// The latencies of messages.
pub(crate) struct Latency {
    histogram: Option<Histogram<u64>>,
    sum: u128,
    least: u64,
    most: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { histogram: Histogram::new_with_bounds(1, LONGEST, DIGITS).ok(), sum: 0, least: u64::MAX, most: 0 }
    }
}

/// A row of the histogram: from one time up to, and without, another, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    from: u64,
    to: u64,
    count: u64,
}

impl Latency {
    /// Takes one more into account.
    pub(crate) fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST).min(LONGEST);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns);
            self.sum += u128::from(ns);
            self.least = self.least.min(ns);
            self.most = self.most.max(ns);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The time that this part of them did not exceed, in nanoseconds.
    fn percentile(&self, part: f64) -> u64 {
        // The histogram tells the end of the small range in which the value lies.
        self.histogram.as_ref().map_or(0, |h| h.value_at_quantile(part)).clamp(self.least, self.most)
    }

    fn mean(&self) -> u64 {
        self.sum.checked_div(self.count().into()).unwrap_or(0) as u64
    }

    /// The rows from the first to the last that has any.
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let Some(histogram) = &self.histogram else { return rows };
        for step in histogram.iter_recorded() {
            let value = step.value_iterated_to().clamp(self.least, self.most);
            while rows.last().is_none_or(|row| row.to <= value) {
                let from = rows.last().map_or_else(|| row_of(value), |row| row.to);
                rows.push(Row { from, to: after(from), count: 0 });
            }
            if let Some(row) = rows.last_mut() {
                row.count += step.count_at_value();
            }
        }
        rows
    }

    /// Percentiles and bars. Rows that are empty and stand together become one.
    pub(crate) fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        let named = PERCENTILES.iter().map(|(part, name, _)| (*name, self.percentile(*part)));
        let percentiles: Vec<_> = [("min", self.least)].into_iter().chain(named).chain([("max", self.most)]).collect();
        let rows = self.rows();
        let widest = rows.iter().map(|row| row.to).chain([self.most]).max().unwrap_or(0);
        let width = us(widest).len();
        for (name, ns) in percentiles {
            writeln!(out, "  {name:>6} {:>width$} us", us(ns))?;
        }
        let largest = rows.iter().map(|row| row.count).max().unwrap_or(1);
        let digits = largest.to_string().len();
        writeln!(out)?;
        let mut gap = false;
        for (i, row) in rows.iter().enumerate() {
            let lonely = |i: usize| rows.get(i).is_some_and(|row| row.count == 0);
            if lonely(i) && (lonely(i + 1) || gap) {
                if !gap {
                    writeln!(out, "  {:>width$}", "...")?;
                }
                gap = true;
                continue;
            }
            gap = false;
            let bar = "#".repeat(bar(row.count, largest));
            let line = format!("  {:>width$} - {:>width$} us  {:>digits$}  {bar}", us(row.from), us(row.to), row.count);
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// For programs: all times in nanoseconds.
    pub(crate) fn object(&self) -> Value {
        if self.count() == 0 {
            return Value::Null;
        }
        let rows = self.rows().into_iter().map(|r| json!({ "from_ns": r.from, "to_ns": r.to, "count": r.count }));
        let mut object = json!({
            "messages": self.count(),
            "min_ns": self.least,
            "mean_ns": self.mean(),
            "max_ns": self.most,
            "histogram": rows.collect::<Vec<_>>(),
        });
        for (part, _, name) in PERCENTILES {
            object[name] = self.percentile(part).into();
        }
        object
    }
}

/// Characters of a bar; what is there is seen.
fn bar(count: u64, largest: u64) -> usize {
    if count == 0 { 0 } else { (u128::from(count) * u128::from(BAR) / u128::from(largest)).max(1) as usize }
}

/// Nanoseconds as microseconds, so that the points of a column stand below each other.
fn us(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e3)
}

/// Where the row begins in which a time lies; times below 10 ns are in one.
fn row_of(value: u64) -> u64 {
    let mut from = 0;
    while after(from) <= value {
        from = after(from);
    }
    from
}

/// Where the row ends that begins there.
fn after(from: u64) -> u64 {
    let mut decade = 1;
    loop {
        let next = STEPS.iter().map(|step| decade * step).find(|edge| *edge > from);
        match next {
            Some(edge) => return edge,
            None if decade >= u64::MAX / 1000 => return u64::MAX,
            None => decade *= 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[(u64, u64)]) -> Latency {
        let mut latency = Latency::default();
        for (ns, count) in times {
            (0..*count).for_each(|_| latency.record(Duration::from_nanos(*ns)));
        }
        latency
    }

    fn text(latency: &Latency) -> String {
        let mut out = Vec::new();
        latency.text(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Nearest rank: of 1000 sorted values the 500th, 900th, 990th and 999th.
    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut times: Vec<u64> = (1..=1000).map(|i| i * i % 7919 + 100).collect();
        let latency = of(&times.iter().map(|ns| (*ns, 1)).collect::<Vec<_>>());
        times.sort_unstable();
        let object = latency.object();
        assert_eq!((&object["min_ns"], &object["max_ns"]), (&times[0].into(), &times[999].into()));
        for (rank, name) in [(500, "p50_ns"), (900, "p90_ns"), (990, "p99_ns"), (999, "p99_9_ns")] {
            let (exact, told) = (times[rank - 1], object[name].as_u64().unwrap());
            assert!(told.abs_diff(exact) <= exact / 1000 + 1, "{name}: {told}, and is {exact}");
        }
        assert_eq!(object["mean_ns"], times.iter().sum::<u64>() / 1000);
    }

    #[test]
    fn each_time_is_in_one_row_and_rows_join() {
        let times: Vec<(u64, u64)> =
            (0..64).map(|i| (1 << i, i % 3 + 1)).chain([(u64::MAX, 1), (0, 1), (1500, 7), (1499, 7)]).collect();
        let rows = of(&times[..50]).rows();
        assert_eq!(rows.iter().map(|r| r.count).sum::<u64>(), times[..50].iter().map(|t| t.1).sum::<u64>());
        assert!(rows.windows(2).all(|two| two[0].to == two[1].from), "{rows:?}");
        let all = of(&times);
        assert_eq!(all.rows().iter().map(|r| r.count).sum::<u64>(), all.count());
        let rows = of(&[(1499, 7), (1500, 5)]).rows();
        let row = |from, to, count| Row { from, to, count };
        assert_eq!(rows, [row(1000, 1500, 7), row(1500, 2000, 5)], "a row ends before its end");
    }

    #[test]
    fn bars_line_up_and_are_as_long_as_they_should() {
        let text = text(&of(&[(9_990, 1), (12_000, 400), (16_000, 200), (120_000, 10)]));
        let want = "     min   9.99 us
     50%  12.01 us
     90%  16.01 us
     99% 120.00 us
   99.9% 120.00 us
     max 120.00 us

    7.00 -  10.00 us    1  #
   10.00 -  15.00 us  400  ########################################
   15.00 -  20.00 us  200  ####################
     ...
  100.00 - 150.00 us   10  #
";
        assert_eq!(text, want);
    }

    #[test]
    fn nothing_measured_is_no_histogram() {
        let none = Latency::default();
        assert_eq!((text(&none), none.object()), (String::new(), Value::Null));
    }
}
