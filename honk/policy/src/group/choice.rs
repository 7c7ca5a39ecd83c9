//! Choices and pins of the user: made and taken back as a new table, both networks at once.
//!
//! Health and capability do not veto a choice (G-166); it must only be a direct member.

use std::sync::Arc;

use super::{
    change::{Cause, Change},
    table::{GroupTable, net},
};
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
    fn of(changes: &[Change]) -> Self {
        let on = |network| changes.iter().any(|c| c.network == network);
        Self {
            tcp: on(Network::Tcp),
            udp: on(Network::Udp),
        }
    }

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
    /// Where flows of the group may have to move.
    pub changed: Changed,
    /// That, and what it moved in automatic groups above.
    pub changes: Vec<Change>,
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
    /// Makes `member` the choice of a selector, or pins an automatic group to it.
    pub fn choose(
        &self,
        group: GroupId,
        scope: Scope,
        member: MemberId,
        at_ms: u64,
    ) -> Result<Choice, ChooseError> {
        let index = self.index_of(group).ok_or(ChooseError::UnknownGroup)?;
        if self.groups[index].members.iter().all(|m| m.id() != member) {
            return Err(ChooseError::NotAMember);
        }
        Ok(self.with_choice(index, scope, Some(member), at_ms))
    }

    /// Drops the choice: `default`, then the first member; or lets the policy go on (G-165).
    pub fn unchoose(
        &self,
        group: GroupId,
        scope: Scope,
        at_ms: u64,
    ) -> Result<Choice, ChooseError> {
        let index = self.index_of(group).ok_or(ChooseError::UnknownGroup)?;
        Ok(self.with_choice(index, scope, None, at_ms))
    }

    /// The same table without pins: what an activation of another configuration leaves (G-150).
    #[must_use]
    pub fn unpinned(&self) -> Self {
        let mut table = self.clone();
        for index in 0..table.groups.len() {
            let group = &table.groups[index];
            if group.is_automatic() && group.choices != [None; 2] {
                let mut group = (**group).clone();
                group.choices = [None; 2];
                group.selection_revision += 1;
                group.fix();
                table.groups[index] = Arc::new(group);
                table.settle_from(index);
            }
        }
        table
    }

    fn with_choice(
        &self,
        index: usize,
        scope: Scope,
        choice: Option<MemberId>,
        at_ms: u64,
    ) -> Choice {
        let mut table = self.clone();
        let mut group = (*table.groups[index]).clone();
        for &network in scope.networks() {
            let at = net(network);
            if group.choices[at] != choice {
                group.choices[at] = choice;
                group.chosen_at[at] = at_ms;
            }
        }
        let stored = group.choices != self.groups[index].choices;
        if !stored {
            return Choice {
                table,
                changed: Changed::default(),
                changes: Vec::new(),
                stored,
            };
        }
        group.selection_revision += 1;
        group.fix();
        let cause = match choice {
            _ if !group.is_automatic() => Cause::User,
            Some(_) => Cause::Pin,
            None => Cause::Unpin,
        };
        table.groups[index] = Arc::new(group);
        table.settle_from(index);
        // The member itself first: groups above are told as the policy's doing.
        let own = table.changed(index, (self, index), cause);
        let mut group = (*table.groups[index]).clone();
        for change in &own {
            group.since[net(change.network)] = at_ms;
        }
        table.groups[index] = Arc::new(group);
        let above = table.moved_since(self, at_ms);
        let changed = Changed::of(&own);
        let group = table.groups[index].id;
        let above = above.into_iter().filter(|change| change.group != group);
        Choice {
            changed,
            changes: own.into_iter().chain(above).collect(),
            stored,
            table,
        }
    }
}
