//! Where the parts of a configuration stand in its text, for findings about their meaning that
//! only the finished groups and fetched nodes tell.

use std::collections::HashMap;

use honk_grammar::ast::Span;

/// Places of one configuration. They are no part of its meaning: all are equal.
#[derive(Clone, Debug, Default)]
pub struct Places {
    groups: HashMap<String, GroupPlaces>,
    subscriptions: Vec<Span>,
}

/// Places of one group.
#[derive(Clone, Debug)]
pub struct GroupPlaces {
    /// Its name; of the group of a node that a rule names, that name.
    pub name: Span,
    /// The value of `default:`.
    pub default: Option<Span>,
    /// The value of `final:`.
    pub final_: Option<Span>,
    /// The values of `filter:`, line by line.
    pub filters: Vec<Span>,
    /// Arguments of `group(...)` by the group they name.
    pub nested: HashMap<String, Span>,
}

impl Places {
    pub(super) fn add_group(&mut self, name: &str, places: GroupPlaces) {
        self.groups.entry(name.to_owned()).or_insert(places);
    }

    pub(super) fn add_subscription(&mut self, span: Span) {
        self.subscriptions.push(span);
    }

    /// Places of a group by its name.
    pub fn group(&self, name: &str) -> Option<&GroupPlaces> {
        self.groups.get(name)
    }

    /// The link of a subscription by its number.
    pub fn subscription(&self, index: usize) -> Option<Span> {
        self.subscriptions.get(index).copied()
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}
