//! Numbers that the driver itself gives out, per device.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::qp::UserIndices;

/// User indices of queues and the variant bytes of memory keys.
#[derive(Default)]
pub(crate) struct Numbers {
    indices: Arc<UserIndices>,
    variant: AtomicU32,
}

impl Numbers {
    pub(crate) fn indices(&self) -> &Arc<UserIndices> {
        &self.indices
    }

    /// The low byte of the next memory key: it changes from key to key, so that a key that was destroyed is not taken
    /// for the next one with its index.
    pub(crate) fn next_key_variant(&self) -> u8 {
        self.variant.fetch_add(1, Ordering::Relaxed) as u8
    }
}
