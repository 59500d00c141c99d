//! Numbers of objects: a device chooses them, so two traces differ in them; but each must have been made, and commands
//! that belong together must work on objects that belong together.

use std::collections::{HashMap, HashSet};

use super::Line;
use super::diff::{Difference, Kind, Trace};
use super::meaning::{makes, objects};

type Object = (&'static str, u64);

/// Which object of one trace is which of the other.
#[derive(Default)]
pub(super) struct Numbers {
    to_b: HashMap<Object, u64>,
    to_a: HashMap<Object, u64>,
}

impl Numbers {
    /// What is wrong with the numbers in two traces whose commands belong together as `pairs` say, in rising order.
    pub(super) fn check(a: &Trace<'_>, b: &Trace<'_>, pairs: &[(usize, usize)]) -> Vec<Difference> {
        let kind = Kind::Objects;
        let of_a = never_made(a.lines).into_iter().map(|(i, what)| {
            let command = a.labels[i].clone();
            Difference { kind, a: Some(i), b: None, command, what: format!("{what} |") }
        });
        let of_b = never_made(b.lines).into_iter().map(|(j, what)| {
            let command = b.labels[j].clone();
            Difference { kind, a: None, b: Some(j), command, what: format!("| {what}") }
        });
        let mut numbers = Self::default();
        let crossed = pairs.iter().filter_map(|(i, j)| {
            let what = numbers.pair(&a.lines[*i], &b.lines[*j])?;
            Some(Difference { kind, a: Some(*i), b: Some(*j), command: a.labels[*i].clone(), what })
        });
        of_a.chain(of_b).chain(crossed).collect()
    }

    fn pair(&mut self, a: &Line, b: &Line) -> Option<String> {
        let made = makes(&a.name);
        for (kind, ours) in objects(a) {
            let Some((_, theirs)) = objects(b).find(|(other, _)| *other == kind) else { continue };
            let known = (self.to_b.get(&(kind, ours)), self.to_a.get(&(kind, theirs)));
            if made != Some(kind) && (known.0.is_some() || known.1.is_some()) && known != (Some(&theirs), Some(&ours)) {
                return Some(format!("{kind} {ours:#x} | {theirs:#x}, which do not belong together"));
            }
            self.to_b.insert((kind, ours), theirs);
            self.to_a.insert((kind, theirs), ours);
        }
        None
    }
}

/// Commands that name an object that no command before has made, or that is gone; 0 stands for none.
fn never_made(lines: &[Line]) -> Vec<(usize, String)> {
    let mut alive = HashSet::new();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.status == Some(0)) {
        let made = makes(&line.name);
        let ends = line.name.starts_with("DESTROY_") || line.name.starts_with("DEALLOC_");
        for (kind, number) in objects(line) {
            if made == Some(kind) {
                alive.insert((kind, number));
            } else if number != 0 && !alive.contains(&(kind, number)) {
                found.push((at, format!("{kind} {number:#x} was not made before")));
            } else if ends {
                alive.remove(&(kind, number));
            }
        }
    }
    found
}
