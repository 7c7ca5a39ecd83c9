//! Choices of the user: made and taken back as a new table, both networks at once.
//!
//! Health and capability do not veto a choice (G-166); it must only be a direct member.

use std::sync::Arc;

use super::table::{GroupTable, net};
use crate::id::{GroupId, MemberId, Network};

/// Networks a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Both together.
    Both,
}

impl Scope {
    fn networks(self) -> &'static [Network] {
        match self {
            Self::Tcp => &[Network::Tcp],
            Self::Udp => &[Network::Udp],
            Self::Both => &[Network::Tcp, Network::Udp],
        }
    }
}

/// Networks whose selected member is another one than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// TCP.
    pub tcp: bool,
    /// UDP.
    pub udp: bool,
}

impl Changed {
    /// Whether anything changed.
    pub fn any(self) -> bool {
        self.tcp || self.udp
    }
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The table to publish.
    pub table: GroupTable,
    /// Where flows may have to move.
    pub changed: Changed,
    /// Whether the stored choices differ, so that they are worth writing.
    pub stored: bool,
}

/// Why a change is refused; nothing was changed on any network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No such group.
    #[error("no group has this id")]
    UnknownGroup,
    /// Not one of the group's direct members.
    #[error("the member is not listed by the group itself; choose a direct member")]
    NotAMember,
}

impl GroupTable {
    /// Makes `member` the choice of the group.
    pub fn choose(
        &self,
        group: GroupId,
        scope: Scope,
        member: MemberId,
    ) -> Result<Choice, ChooseError> {
        let index = self.index_of(group).ok_or(ChooseError::UnknownGroup)?;
        if self.groups[index].members.iter().all(|m| m.id() != member) {
            return Err(ChooseError::NotAMember);
        }
        Ok(self.with_choice(index, scope, Some(member)))
    }

    /// Drops the choice: `default`, then the first member (G-165).
    pub fn unchoose(&self, group: GroupId, scope: Scope) -> Result<Choice, ChooseError> {
        let index = self.index_of(group).ok_or(ChooseError::UnknownGroup)?;
        Ok(self.with_choice(index, scope, None))
    }

    fn with_choice(&self, index: usize, scope: Scope, choice: Option<MemberId>) -> Choice {
        let mut table = self.clone();
        let mut group = (*table.groups[index]).clone();
        for &network in scope.networks() {
            group.choices[net(network)] = choice;
        }
        let stored = group.choices != self.groups[index].choices;
        group.selection_revision += u64::from(stored);
        table.groups[index] = Arc::new(group);
        table.resolve();
        Choice {
            changed: self.changed(index, &table, index),
            stored,
            table,
        }
    }

    /// Groups of both tables whose selected member is another one in `newer` (G-186).
    pub fn changes(&self, newer: &Self) -> Vec<(GroupId, Changed)> {
        let both = self.groups.iter().enumerate().filter_map(|(old, group)| {
            let new = newer.index_of(group.id)?;
            Some((group.id, self.changed(old, newer, new)))
        });
        both.filter(|(_, changed)| changed.any()).collect()
    }

    fn changed(&self, old: usize, newer: &Self, new: usize) -> Changed {
        let member = |table: &Self, index: usize, network| {
            let member = table.resolver(network).member(&table.groups[index]);
            member.map(|(m, _)| m.id())
        };
        let differs = |network| member(self, old, network) != member(newer, new, network);
        Changed {
            tcp: differs(Network::Tcp),
            udp: differs(Network::Udp),
        }
    }
}
