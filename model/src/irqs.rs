//! MSI-X interrupts: who hears them.

/// The interrupt vectors of the function.
#[derive(Default)]
pub(crate) struct Irqs {
    /// Fired and not heard yet.
    pending: Vec<bool>,
    /// Where a vector is heard, when that is another process.
    #[cfg(feature = "serve")]
    signals: Vec<Option<Box<dyn Signal>>>,
    /// Interrupts raised since the model was made, by vector.
    pub(crate) raised: Vec<u64>,
}

/// What hears an interrupt in another process.
#[cfg(feature = "serve")]
pub(crate) trait Signal: Send {
    /// Passes one interrupt on; does not wait.
    fn fire(&self);
}

impl Irqs {
    pub(crate) fn new(vectors: u32) -> Self {
        Self {
            pending: vec![false; vectors as usize],
            #[cfg(feature = "serve")]
            signals: Vec::new(),
            raised: vec![0; vectors as usize],
        }
    }

    /// Takes the interrupt of `vector`, if it has fired.
    pub(crate) fn take(&mut self, vector: u32) -> bool {
        self.pending.get_mut(vector as usize).is_some_and(std::mem::take)
    }

    /// Takes those of the interrupts `vectors` that have fired; whether there was one.
    pub(crate) fn take_any(&mut self, vectors: &[u32]) -> bool {
        vectors.iter().filter(|vector| self.take(**vector)).count() > 0
    }

    /// Whether any has fired that nobody has heard.
    pub(crate) fn any(&self) -> bool {
        self.pending.contains(&true)
    }

    /// Forgets the interrupts that nobody has heard.
    pub(crate) fn clear(&mut self) {
        self.pending.fill(false);
    }

    /// Vectors that are heard in another process.
    pub(crate) fn listening(&self) -> usize {
        #[cfg(feature = "serve")]
        let count = self.signals.iter().flatten().count();
        #[cfg(not(feature = "serve"))]
        let count = 0;
        count
    }

    /// 32 pending bits from vector `first` on, as the pending bit array shows them.
    pub(crate) fn pending_bits(&self, first: usize) -> u32 {
        let here = self.pending.iter().skip(first).take(32);
        here.enumerate().fold(0, |bits, (i, pending)| bits | u32::from(*pending) << i)
    }

    pub(crate) fn raise(&mut self, vector: u32) {
        let Some(pending) = self.pending.get_mut(vector as usize) else { return };
        *pending = true;
        self.raised[vector as usize] += 1;
        #[cfg(feature = "serve")]
        self.pass_on(vector as usize);
    }
}

#[cfg(feature = "serve")]
impl Irqs {
    fn pass_on(&mut self, vector: usize) {
        let (Some(pending), Some(Some(signal))) = (self.pending.get_mut(vector), self.signals.get(vector)) else {
            return;
        };
        if std::mem::take(pending) {
            signal.fire();
        }
    }

    /// From now on `signal` hears `vector`, and at once what has fired before, as with a vector that is unmasked; `None`
    /// lets it go unheard. A vector that does not exist is ignored.
    pub(crate) fn listen(&mut self, vector: u32, signal: Option<Box<dyn Signal>>) {
        let vector = vector as usize;
        if vector >= self.pending.len() {
            return;
        }
        self.signals.resize_with(self.pending.len(), || None);
        self.signals[vector] = signal;
        self.pass_on(vector);
    }

    /// Nobody hears anything any more, and what has fired is forgotten: MSI-X is off.
    pub(crate) fn silence(&mut self) {
        self.signals.clear();
        self.clear();
    }
}
