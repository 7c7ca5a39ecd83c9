//! What a group's own `check_url` says of its members. It speaks for TCP only.

use super::{
    live::{Resolver, TCP},
    standing::{self, Mark, UrlMark},
};

impl Resolver<'_> {
    /// Whether what it knows of its leaves is what every group knows.
    pub(super) fn judges_like_everybody(&self, index: usize, network: usize) -> bool {
        let own_url = network == TCP && self.urls[index].is_some();
        !own_url && self.groups[index].extra.is_empty()
    }

    /// The leaf's mark, with what the group's own `check_url` says of the member.
    pub(super) fn under_url(
        &self,
        index: usize,
        at: u32,
        network: usize,
        family: usize,
        leaf: u32,
    ) -> Mark {
        let mark = self.marks[leaf as usize][network][family];
        match self.url_mark(index, at, network) {
            Some(states) => standing::replaced(mark, states[family]),
            None => mark,
        }
    }

    fn url_mark(&self, index: usize, at: u32, network: usize) -> UrlMark {
        match &self.urls[index] {
            Some(marks) if network == TCP => marks[at as usize],
            _ => None,
        }
    }

    pub(super) fn has_url_mark(&self, index: usize, at: u32, network: usize) -> bool {
        self.url_mark(index, at, network).is_some()
    }
}
