//! Completions of sessions, which differ in little: many at a time.

use mlx5_hw::cqe::CqeRef;
use mlx5_hw::ring::{CqeFormat, Titled};

use super::Wc;
use super::batch::Batch;
use super::completion::Current;
use super::rows::Row;

/// Looks at a session's completion that was delivered one by one.
#[inline(always)]
pub(super) fn see(titled: &mut Option<Titled<Wc>>, current: &Current<'_>) {
    if !titled.as_ref().is_some_and(|titled| titled.is_like(current.cqe)) {
        *titled = of_title(current.cqe, current.wc());
    }
}

#[cold]
#[inline(never)]
fn of_title(cqe: CqeRef<'_>, wc: Wc) -> Option<Titled<Wc>> {
    Titled::new(cqe, wc)
}

impl<F: CqeFormat> Batch<'_, F> {
    /// Takes completions of sessions that are like the one before; how many.
    #[inline(always)]
    pub(super) fn take_titled(&mut self, wcs: &mut [Wc]) -> usize {
        let cpu = self.likeness.cpu;
        let Some(titled) = &self.likeness.titled else { return 0 };
        let Row::Live(queue) = self.ending.pass.find(titled.user_index()) else { return 0 };
        let work = queue.recv();
        if queue.srq.is_some() || !work.reported_by(self.known.cqn) {
            return 0;
        }
        let taken = self.entries.take_titled(cpu, titled, work.next_in_order(), wcs);
        work.advance(taken as u32);
        taken
    }
}
