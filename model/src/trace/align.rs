//! Which command of one trace is which of the other.

use super::Line;
use super::diff::Trace;

/// The most cells of the table of scores: 64 MiB.
const MOST_CELLS: usize = 1 << 24;

/// Commands that belong together, by their places in both traces, in both orders rising. `None` when there are too
/// many commands between the first difference and the last one.
pub(super) fn align(one: &Trace<'_>, other: &Trace<'_>) -> Option<Vec<(usize, usize)>> {
    let (a, b) = (one.lines, other.lines);
    let score = |i: usize, j: usize| score(&a[i], &b[j], one.labels[i] == other.labels[j]);
    let shorter = a.len().min(b.len());
    let head = (0..shorter).take_while(|i| score(*i, *i) == ALIKE).count();
    let alike = |n: &usize| score(a.len() - 1 - n, b.len() - 1 - n) == ALIKE;
    let tail = (0..shorter - head).take_while(alike).count();
    let (rows, columns) = (a.len() - head - tail, b.len() - head - tail);
    let width = columns + 1;
    if (rows + 1).checked_mul(width)? > MOST_CELLS {
        return None;
    }
    // The best score of what follows from each pair of places on.
    let mut best = vec![0_u32; (rows + 1) * width];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            let skip = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            best[i * width + j] = match score(head + i, head + j) {
                0 => skip,
                n => skip.max(n + best[(i + 1) * width + j + 1]),
            };
        }
    }
    let mut pairs: Vec<_> = (0..head).map(|i| (i, i)).collect();
    let (mut i, mut j) = (0, 0);
    while i < rows && j < columns {
        let here = best[i * width + j];
        let n = score(head + i, head + j);
        if n > 0 && here == n + best[(i + 1) * width + j + 1] {
            pairs.push((head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if here == best[(i + 1) * width + j] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs.extend((0..tail).rev().map(|n| (a.len() - 1 - n, b.len() - 1 - n)));
    Some(pairs)
}

/// Score of two commands that mean the same: more than two pairs that only fit.
const ALIKE: u32 = 5;

/// How well two commands fit: 0 not at all.
fn score(a: &Line, b: &Line, same_meaning: bool) -> u32 {
    // Another register is another command.
    let same = (a.opcode, a.op_mod) == (b.opcode, b.op_mod) && a.detail("reg") == b.detail("reg");
    match same {
        false => 0,
        true if same_meaning => ALIKE,
        true => 2,
    }
}
