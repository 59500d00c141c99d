//! What a driver did that no driver may do.

use core::fmt;

/// One breach of the hardware's rules, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule was broken.
    pub kind: ViolationKind,
    /// Model time in nanoseconds.
    pub at: u64,
    /// What exactly was seen: addresses, numbers, indices.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} ns: {}. {}", self.kind, self.at, self.detail, self.kind.consequence())
    }
}

macro_rules! violations {
    ($($(#[$doc:meta])* $name:ident = $consequence:literal;)*) => {
        /// The rules that the model watches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ViolationKind {
            $($(#[$doc])* $name,)*
        }

        impl ViolationKind {
            /// Every rule.
            pub const ALL: &'static [ViolationKind] = &[$(ViolationKind::$name,)*];

            /// What hardware does when the rule is broken, in a sentence.
            pub const fn consequence(self) -> &'static str {
                match self {
                    $(ViolationKind::$name => $consequence,)*
                }
            }
        }
    };
}

violations! {
    /// The device was made to read or write an address that is not mapped for it.
    DmaUnmapped = "The IOMMU blocks the access and the queue that caused it goes to error; without an IOMMU foreign memory is read or overwritten.";
    /// The device was made to access memory that the driver has freed.
    DmaAfterFree = "The access lands in memory that belongs to someone else by now.";
    /// Memory was freed that the device may still write.
    FreedWhileOwned = "The device goes on writing into memory that belongs to someone else by now.";
    /// A BAR access was not aligned to its width.
    BarMisaligned = "The root complex splits the access, and the device sees registers torn or ignores it.";
    /// A BAR access beyond the size of the BAR.
    BarOutOfRange = "No device answers: reads return all ones, writes are lost.";
    /// A register that is read only was written.
    BarReadOnly = "The write is ignored.";
    /// The command doorbell was rung before the address of the command queue was written.
    DoorbellBeforeQueueAddress = "The device fetches a command from address 0 or hangs.";
    /// The command doorbell was rung while firmware was still booting.
    DoorbellWhileInitializing = "The doorbell is lost: the command never completes.";
    /// A doorbell for a command slot whose command has not completed.
    CommandSlotBusy = "The device executes a mix of the two commands or neither.";
    /// A doorbell for an entry whose owner bit says software.
    CommandNotOwned = "The device does not take the command; it never completes.";
    /// The address of the command queue was changed while the function was enabled.
    QueueAddressChanged = "Commands are fetched from a half-written address.";
    /// A command entry or its mailboxes broke the delivery rules: type, signature, token, block number, alignment.
    CommandDelivery = "The command is not executed and completes with a delivery status.";
    /// A command of the wrong input or output length.
    CommandLength = "The command is not executed: bad input or output length.";
    /// A bit that must be zero was set in a command.
    ReservedBits = "Firmware refuses the command today, or gives the bit a meaning tomorrow.";
    /// A command in a state of the function that does not allow it.
    CommandOrder = "The command is not executed: bad system state.";
    /// An unknown command opcode or operation modifier.
    UnknownCommand = "The command is not executed: bad operation.";
    /// A page was given to firmware that is unaligned, twice there, at address 0 or not mapped.
    BadPage = "Firmware keeps its own state in memory that it shares with someone else: the function fails later, far from the cause.";
    /// The driver wrote into a page that firmware owned.
    PageTouched = "Firmware's state is corrupted: the function stops with an internal error.";
    /// Objects were alive at TEARDOWN_HCA.
    ObjectsAtTeardown = "Their queues go on writing memory until the next reset.";
    /// Firmware still held pages at DISABLE_HCA.
    PagesAtDisable = "The pages are lost to the driver, and freeing them corrupts firmware.";
    /// An event queue was created over memory whose owner bits are not all 1.
    EqNotInitialised = "The driver takes stale bytes for events.";
    /// A completion queue was created over memory whose entries are not marked invalid.
    CqNotInitialised = "The driver takes stale bytes for completions.";
    /// More events were written than the event queue holds.
    EqOverrun = "The event queue goes to error and no further event is reported.";
    /// The consumer index of an event queue runs ahead of its producer or goes back.
    EqConsumerIndex = "The device believes in room that is not there and overwrites events.";
    /// A doorbell to a page that is not an allocated UAR.
    UarUnknownPage = "The doorbell is dropped and a doorbell error may be logged.";
    /// A doorbell to an offset of a UAR page that has no register, or of the wrong width.
    UarUnknownOffset = "The write is dropped.";
    /// A doorbell that names an object which does not exist.
    DoorbellUnknownObject = "The doorbell is dropped and a doorbell error may be logged.";
    /// A doorbell rung in another UAR page than the one the object was created with.
    DoorbellWrongUar = "The protection check fails and the doorbell is dropped.";
    /// A send doorbell for a queue pair that has no send queue or is not ready to send.
    SendDoorbellState = "The doorbell is dropped; the work requests start with a later one or never.";
    /// A send doorbell before its doorbell record was written, or twice for one record.
    SendRecordStale = "The device reads the old record and finds nothing to do: the work request starts with a later doorbell or never.";
    /// A work request in a BlueFlame buffer is not the one in the queue's memory.
    BlueFlameDiffers = "The device executes the one or the other, depending on whether the store arrived whole.";
    /// A part of a work request was stored to a BlueFlame buffer, and then something else came.
    BlueFlameIncomplete = "The device waits for the rest or takes a mix of two requests; at best it reads the request from memory, late.";
    /// More was stored to a BlueFlame buffer than the blocks of one work request, or the request has more than the buffer holds.
    BlueFlameLength = "What runs over the end of the buffer lands in the other one, and spoils the work request that is there.";
    /// Two work requests, one after the other, were stored to the same BlueFlame buffer instead of to each in turn.
    BlueFlameBuffer = "The processor combines both into one store, or the second overwrites the first while the device reads it: a request is lost.";
    /// A work request was stored to a BlueFlame buffer of a function that has none (`bf` is 0), or not to a buffer.
    BlueFlameMissing = "The device takes the doorbell at its start, at best, and reads the work request from memory.";
    /// The send counter of a doorbell record covers more than the queue holds, or went back.
    SendQueueOverrun = "The device executes stale and half-written work requests.";
    /// The receive counter of a doorbell record covers more than the queue holds, or went back.
    ReceiveQueueOverrun = "The device scatters messages to where stale work requests point.";
    /// The link of a work request in a shared receive queue leads out of the queue or to one that is posted already.
    ReceiveLink = "The device takes a work request twice or from foreign memory, and the queue goes to error.";
    /// Reserved bits of a doorbell record are set.
    DoorbellRecordReserved = "They are ignored today, or are part of the counter of a device that is wider.";
    /// A work request that is not well formed: index, queue number, size, reserved bits, a segment of length 0.
    WqeMalformed = "The queue pair goes to error, or the device does something else than was meant (a length of 0 stands for 2 GiB).";
    /// The consumer index of a completion queue runs ahead of its producer or goes back.
    CqConsumerIndex = "The device believes in room that is not there and overwrites completions, or reports an overrun.";
    /// A completion queue was armed by a doorbell that differs from the arm word of its record, or has reserved bits set.
    CqArmWord = "The arm request is lost: no event comes for the next completion.";
}
