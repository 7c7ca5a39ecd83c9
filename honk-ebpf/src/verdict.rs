//! What happens to a packet, as one value, and the codes the kernel wants.

use honk_common::flow::{FRAG_DROP, FRAG_PASS, FRAG_REDIRECT};

/// Lets the next program, and then the stack, have the packet. Never "accept": that would
/// end the chain for programs of others.
pub const NEXT: i32 = -1;
pub const SHOT: i32 = 2;

/// No event belongs to the verdict.
pub const QUIET: u32 = u32::MAX;

/// A decision about one packet. `action` uses the codes of the fragment table, so that later
/// fragments repeat it as it is.
#[derive(Clone, Copy)]
pub struct Verdict {
    pub action: u8,
    pub ordinal: u8,
    /// For passed packets: the mark to set, zero leaves it alone.
    pub mark: u32,
    /// For redirected packets: replies must find the client, so remember the way.
    pub learn: bool,
    /// Event to send, or [`QUIET`]; `rule` goes with it.
    pub event: u32,
    pub rule: u16,
}

impl Verdict {
    pub const PASS: Self = Self::pass_marked(0);

    #[inline(always)]
    const fn new(action: u8, ordinal: u8) -> Self {
        Self {
            action,
            ordinal,
            mark: 0,
            learn: false,
            event: QUIET,
            rule: u16::MAX,
        }
    }

    #[inline(always)]
    pub const fn pass_marked(mark: u32) -> Self {
        Self {
            mark,
            ..Self::new(FRAG_PASS, 0)
        }
    }

    #[inline(always)]
    pub const fn drop(ordinal: u8) -> Self {
        Self::new(FRAG_DROP, ordinal)
    }

    /// Drops and tells the daemon.
    #[inline(always)]
    pub const fn drop_loudly(ordinal: u8, event: u32, rule: u16) -> Self {
        Self {
            event,
            rule,
            ..Self::new(FRAG_DROP, ordinal)
        }
    }

    #[inline(always)]
    pub const fn redirect(ordinal: u8) -> Self {
        Self::new(FRAG_REDIRECT, ordinal)
    }

    /// Redirects, and remembers the client.
    #[inline(always)]
    pub const fn proxy(ordinal: u8) -> Self {
        Self {
            learn: true,
            ..Self::new(FRAG_REDIRECT, ordinal)
        }
    }

    /// Repeats what a first fragment got.
    #[inline(always)]
    pub const fn repeat(action: u8, ordinal: u8, mark: u32) -> Self {
        Self {
            mark,
            ..Self::new(action, ordinal)
        }
    }

    /// Nothing a later fragment would have to know.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        self.action == FRAG_PASS && self.mark == 0
    }
}
