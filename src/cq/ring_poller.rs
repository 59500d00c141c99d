//! Polling for those who know the format of a CQ's entries: nothing is asked on the way.

use core::fmt;
use core::marker::PhantomData;

use super::entries::RingEntries;
use super::{Cq, PollAttr, PollError, Poller};

/// A CQ of which the format of the entries is known: made by [`Cq::as_ring`].
pub struct RingCq<'c, F> {
    cq: &'c mut Cq,
    format: PhantomData<F>,
}

impl Cq {
    /// The CQ as one with entries of format `F`, whose [`start_poll`](RingCq::start_poll) is the one for it alone; `None` if it has
    /// others. Entries are [`Cqe64`](mlx5_hw::ring::Cqe64) or [`Cqe128`](mlx5_hw::ring::Cqe128) by their
    /// [size](Cq::cqe_size), and [`Basic`](mlx5_hw::ring::Basic) or [`Enhanced`](mlx5_hw::ring::Enhanced) of these if the CQ was
    /// created with compression.
    ///
    /// ```
    /// # use mlx5::{Cq, PollAttr, PollError};
    /// use mlx5_hw::ring::Cqe64;
    ///
    /// fn sum(cq: &mut Cq) -> Result<u64, PollError> {
    ///     let Some(mut ring) = cq.as_ring::<Cqe64>() else { return Ok(0) };
    ///     let mut poller = ring.start_poll(&PollAttr::default())?;
    ///     let mut sum = poller.completion().wr_id();
    ///     while let Ok(completion) = poller.next() {
    ///         sum += completion.wr_id();
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn as_ring<F: RingEntries>(&mut self) -> Option<RingCq<'_, F>> {
        F::of(&mut self.ring).is_some().then_some(RingCq { cq: self, format: PhantomData })
    }
}

impl<F: RingEntries> RingCq<'_, F> {
    /// [`Cq::start_poll`], with a poller for these entries.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn start_poll(&mut self, attr: &PollAttr) -> Result<Poller<'_, F>, PollError> {
        Poller::start(self.cq, attr)
    }
}

impl<F> fmt::Debug for RingCq<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cq.fmt(f)
    }
}
