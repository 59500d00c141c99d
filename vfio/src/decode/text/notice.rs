//! Messages that always mean the same, with what to make of them.

/// A meaning.
#[derive(Debug)]
pub struct Notice {
    /// What it is, a word for programs.
    pub what: &'static str,
    /// What happened.
    pub headline: &'static str,
    /// What usually causes it, most likely first.
    pub causes: &'static [&'static str],
    /// What to do next.
    pub next: &'static [&'static str],
}

/// The health counter stands still.
pub const MISS_COUNT: Notice = Notice {
    what: "health-counter",
    headline: "The device's health counter stood still at several reads in a row: its firmware does not run, or reads do not reach it.",
    causes: &[
        "The firmware hangs or has stopped on an error: the health buffer, printed right after it, names it.",
        "The device has left the bus: then every read gives all ones, and the health fields are 0xffffffff.",
        "A PCIe error, or power management that put the slot to sleep.",
    ],
    next: &[
        "Look at synd and ext_synd in the health lines that follow, and for PCIe errors (AER) just before.",
        "Send no more commands. Reset the function (FLR), the device if that does not help; update the firmware.",
    ],
};
/// The driver's periodic check found a fatal state.
pub const FATAL_SENSOR: Notice = Notice {
    what: "health-fatal",
    headline: "The driver found the device in a fatal state and gives it up.",
    causes: &[
        "1: reads give all ones, the device has left the bus. 2: the PCI channel is offline. 3: the interface was disabled. \
         4: another function asked for a reset. 5: the firmware reports a syndrome and asks for a reset.",
    ],
    next: &["Look for what came before: PCIe errors, a reset by another driver or tool, the health lines."],
};
/// Reads give all ones.
pub const SLOT_GONE: Notice = Notice {
    what: "device-gone",
    headline: "Reads of the device give all ones: it has left the bus.",
    causes: &[
        "A PCIe link that went down, surprise removal, a hot reset by someone else, or an error that shut the slot off.",
    ],
    next: &[
        "Look for PCIe errors (AER, DPC) just before; `lspci` tells whether the function is still there.",
        "Remove and rescan the function, or power-cycle the host; the pages given to the device stay its own until then.",
    ],
};
/// A reset does not help.
pub const COLD_RESET: Notice = Notice {
    what: "health-cold-reset",
    headline: "The firmware says that only a power cycle helps.",
    causes: &["A failure that a reset of the function does not clear."],
    next: &["Power the host off and on again; a reboot may keep the slot powered and is not enough."],
};
/// mlx5e's own line about a CQ error.
pub const MLX5E_CQ_EVENT: Notice = Notice {
    what: "event",
    headline: "A CQ of the Ethernet driver reported an error; event 0x4 is CQ_ERROR. The line with 'CQ error on CQN' has the reason.",
    causes: &["The CQ overran: more work was outstanding than it has entries."],
    next: &[
        "Look for the line 'CQ error on CQN' with the same number: its syndrome is 1 for an overrun, 2 for refused access.",
    ],
};
/// A send queue does not move on.
pub const TX_TIMEOUT: Notice = Notice {
    what: "tx-timeout",
    headline: "A send queue of the Ethernet driver did not complete in time.",
    causes: &[
        "A lost interrupt: the driver finds the entries when it looks into the event queue by itself, and goes on.",
        "The CQ or the send queue is in the error state: an error entry stands before this line.",
        "The other side stops the link by flow control (pause frames).",
    ],
    next: &[
        "Look before this line for an error entry or a CQ error of the same numbers; else at pause counters and interrupts.",
    ],
};
/// The firmware does not start.
pub const FW_NOT_READY: Notice = Notice {
    what: "bring-up",
    headline: "The firmware is still starting; the driver waits for the `initializing` bit to clear before its first command.",
    causes: &[
        "The firmware hangs at start, or its image in flash is damaged (livefish mode has another device id).",
        "initializing reads 0xffffffff: the device does not answer on the bus, or memory space is off.",
        "Another function of the card, or the card's own processor, holds it back.",
    ],
    next: &[
        "Read the device's id with lspci; if all reads give ones, reset the slot or power-cycle.",
        "Burn the firmware again if `flint` or `mstflint` still reach it.",
    ],
};
/// ENABLE_HCA failed.
pub const ENABLE_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "The first command, ENABLE_HCA, failed.",
    causes: &[
        "The command never reached the device: bus mastering off, a command queue address that the IOMMU does not map.",
        "The firmware refused the function: a VF whose PF has not enabled it.",
    ],
    next: &["The line before has the status or the timeout of the command: that is the reason."],
};
/// INIT_HCA failed.
pub const INIT_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "INIT_HCA failed: the function was not started.",
    causes: &["Pages that the firmware wanted were not given, or a capability was set that it does not have."],
    next: &["The line before has the command's status and syndrome: that is the reason."],
};
/// The command interface could not be used.
pub const CMDIF_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "The command interface could not be set up.",
    causes: &[
        "The firmware speaks another revision of the command interface; this driver and Linux want 5.",
        "The command queue's page is not aligned to 4096 bytes: the low 12 bits of its address carry sizes and the interface state.",
        "Reads give all ones: the device does not answer.",
    ],
    next: &[
        "Check the revision, that memory space and bus mastering are on, and the page's alignment and I/O address.",
    ],
};
/// SET_ISSI failed.
pub const ISSI_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "Driver and firmware found no interface revision (ISSI) that both speak.",
    causes: &["A firmware that is too old for this driver."],
    next: &["Update the firmware."],
};
/// Pages for the firmware could not be had.
pub const PAGES_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "The firmware did not get the pages that it wants before it starts.",
    causes: &["The host has no memory left, or MANAGE_PAGES was refused or timed out."],
    next: &["The line before has the command's status; check free memory and the IOMMU's limits."],
};
/// TEARDOWN_HCA failed.
pub const TEARDOWN_FAILED: Notice = Notice {
    what: "teardown",
    headline: "TEARDOWN_HCA failed: the device may still use its pages and queues.",
    causes: &["The firmware hangs: a timeout of the command stands before this line."],
    next: &[
        "Do not unmap or free pages given to the device; reset the function (FLR) first.",
        "A page fault or IOMMU fault after this line is a result of it.",
    ],
};
/// The firmware keeps pages.
pub const PAGES_KEPT: Notice = Notice {
    what: "teardown",
    headline: "The firmware did not give all of its pages back.",
    causes: &[
        "Objects were still alive, of this function or of its VFs.",
        "The firmware hangs or the device has left the bus.",
    ],
    next: &["The pages stay the device's until a reset (FLR) is confirmed: keep them mapped, do not reuse them."],
};
/// The driver does not bind.
pub const LOAD_FAILED: Notice = Notice {
    what: "bring-up",
    headline: "The driver gave the device up; the number is a negative errno.",
    causes: &["A result, not a cause: the first failed command, timeout or message before it is the reason."],
    next: &["Read the lines before this one, from the driver's first line about this device."],
};
/// BAR 0 is missing.
pub const NO_BAR: Notice = Notice {
    what: "bring-up",
    headline: "BAR 0, which holds the registers, is not there.",
    causes: &["The host assigned no address to it: too little room below a bridge, or the function was hidden."],
    next: &["Look at `lspci -vv` for the BAR, and at the host's messages about resources."],
};
/// The slot gives too little power.
pub const POWER: Notice = Notice {
    what: "bring-up",
    headline: "The slot offers less power than the card wants.",
    causes: &["A slot or riser that announces less than 75 W, or announces nothing."],
    next: &["Mostly harmless by itself; with modules that drop out or firmware that hangs, try another slot."],
};
/// Polling itself failed.
pub const POLL_FAILED: Notice = Notice {
    what: "poll-failed",
    headline: "Polling the CQ itself failed: an entry named a queue that the library does not know, or the CQ is broken.",
    causes: &[
        "A queue pair was destroyed while its completions were still in the CQ.",
        "The ring's memory was overwritten.",
    ],
    next: &["Look for an asynchronous event of the CQ (overrun, access) at the same time."],
};
/// An asynchronous event that verbs passed on.
pub const ASYNC_EVENT: Notice = Notice {
    what: "event",
    headline: "The device reported an asynchronous event to the program.",
    causes: &[
        "Port events: the link went down or came up, an address (GID) changed, the subnet manager asked to register again.",
        "Fatal and catastrophic events: the device or a queue is lost; the kernel's log has the reason.",
    ],
    next: &["Look at the kernel's log of the same second."],
};
