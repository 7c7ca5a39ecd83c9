//! What a new configuration changes: pure comparison of two accepted ones.
//!
//! Keys that the daemon reads only at start refuse the reload; everything else says which
//! part of the daemon has work to do. Meaning is compared, not text: a moved or reformatted
//! section is no change, and rules are compared by the names they lead to, not by ordinals.

use std::collections::{BTreeMap, BTreeSet};

use honk_common::outbound::{USER_FIRST, is_user};
use honk_grammar::diag::{Diagnostic, Severity};

use crate::{
    config::{Config, GroupDef, restart_required},
    id::Ordinal,
    node::Node,
    routing::rule::{Action, Cond},
};

/// The difference between the running configuration and a candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Dotted keys that need a restart; a reload with any is refused.
    pub restart: Vec<String>,
    /// Whether `global` differs at all.
    pub global: bool,
    /// Groups, implicit ones included.
    pub groups: Names,
    /// Nodes; namesakes count as one.
    pub nodes: Names,
    /// Whether rules mean something else.
    pub rules: bool,
}

/// Named things that came, went or changed; each list is sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Only in the new configuration.
    pub added: Vec<String>,
    /// Only in the old one.
    pub removed: Vec<String>,
    /// In both, with other content.
    pub changed: Vec<String>,
}

impl Diff {
    /// Compares two configurations.
    pub fn of(old: &Config, new: &Config) -> Self {
        Self {
            restart: restart_required(old, new),
            global: old.global != new.global,
            groups: Names::of(&groups(old), &groups(new)),
            nodes: Names::of(&nodes(old), &nodes(new)),
            rules: rules(old) != rules(new),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What differs, for people: `global.log_level`, `node.a`, `group.hk`, `routing`.
    pub fn changed(&self) -> Vec<String> {
        let mut changed = self.restart.clone();
        if self.global && changed.is_empty() {
            changed.push("global".to_owned());
        }
        changed.extend(self.nodes.under("node"));
        changed.extend(self.groups.under("group"));
        changed.extend(self.rules.then(|| "routing".to_owned()));
        changed
    }

    /// The error that refuses the reload, if it must be refused.
    pub fn refusal(&self) -> Option<Diagnostic> {
        if self.restart.is_empty() {
            return None;
        }
        let message = format!("changed keys need a restart: {}", self.restart.join(", "));
        let finding = Diagnostic::new(Severity::Error, "", "restart-required", None, message);
        Some(finding.help("restart honk, or set the keys back and reload"))
    }
}

impl Names {
    fn of<T: PartialEq>(old: &BTreeMap<&str, T>, new: &BTreeMap<&str, T>) -> Self {
        let missing = |from: &BTreeMap<&str, T>, there: &BTreeMap<&str, T>| {
            let names = from.keys().filter(|name| !there.contains_key(*name));
            names.map(|&name| name.to_owned()).collect()
        };
        let differs = |(name, value): &(&&str, &T)| new.get(*name).is_some_and(|v| v != *value);
        let changed = old.iter().filter(differs);
        Self {
            added: missing(new, old),
            removed: missing(old, new),
            changed: changed.map(|(&name, _)| name.to_owned()).collect(),
        }
    }

    fn under(&self, section: &str) -> Vec<String> {
        let lists = [&self.added, &self.removed, &self.changed];
        let all: BTreeSet<&String> = lists.into_iter().flatten().collect();
        let all = all.into_iter();
        all.map(|name| format!("{section}.{name}")).collect()
    }
}

/// Groups by name, without the ordinal: it moves when another group comes or goes.
fn groups(config: &Config) -> BTreeMap<&str, GroupDef> {
    let entry = |def: &'_ GroupDef| GroupDef {
        ordinal: Ordinal(0),
        ..def.clone()
    };
    let groups = config.groups.iter();
    groups.map(|def| (def.name.as_str(), entry(def))).collect()
}

fn nodes(config: &Config) -> BTreeMap<&str, Vec<&Node>> {
    let mut nodes: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in &config.nodes {
        nodes.entry(&node.name).or_default().push(node);
    }
    nodes
}

/// What each line tests and where it leads.
fn rules(config: &Config) -> Vec<(&[Cond], Action, Option<&str>)> {
    let lines = config.rules.lines.iter().map(|line| {
        let Ordinal(ordinal) = line.action.ordinal;
        if !is_user(ordinal) {
            return (&line.conds[..], line.action, None);
        }
        let group = config.groups.get(usize::from(ordinal - USER_FIRST));
        let action = Action {
            ordinal: Ordinal(USER_FIRST),
            ..line.action
        };
        (&line.conds[..], action, group.map(|g| g.name.as_str()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use honk_grammar::parse_text;

    use super::*;
    use crate::config::lower;

    const BASE: &str = "
        global { tproxy_port: 12345 }
        node { a: 'socks5://127.0.0.1:1080' }
        group { g { policy: select } h { policy: select } }
        routing { dport(80) -> g  dport(81) -> h  fallback: direct }
    ";

    fn config(text: &str) -> Config {
        let (config, findings) = lower(&parse_text("config.dae", text), &mut ());
        config.unwrap_or_else(|| panic!("{findings:?}"))
    }

    /// What replacing a part of the base changes.
    fn changes(from: &str, to: &str) -> Diff {
        assert!(BASE.contains(from), "{from}");
        Diff::of(&config(BASE), &config(&BASE.replace(from, to)))
    }

    #[test]
    fn reformatted_configuration_is_no_change() {
        let diff = changes("dport(80) -> g  ", "\n\n# moved\ndport(80) -> 'g'\n");
        assert!(diff.is_empty(), "{diff:?}");
        assert!(diff.changed().is_empty());
        assert_eq!(diff.refusal(), None);
    }

    #[test]
    fn keys_read_at_start_refuse_the_reload_and_are_named() {
        let diff = changes("tproxy_port: 12345", "tproxy_port: 12346");
        assert_eq!(diff.restart, ["global.tproxy_port"]);
        let refusal = diff.refusal().unwrap();
        assert_eq!(refusal.slug, "restart-required");
        assert!(refusal.message.contains("global.tproxy_port"));
    }

    #[test]
    fn live_keys_are_a_change_without_refusal() {
        let diff = changes("tproxy_port: 12345", "drain_timeout: 3s");
        assert_eq!(diff.refusal(), None);
        assert_eq!(diff.changed(), ["global"]);
    }

    #[test]
    fn reordered_groups_change_neither_groups_nor_rules() {
        let swapped = "h { policy: select } g { policy: select }";
        let diff = changes("g { policy: select } h { policy: select }", swapped);
        assert!(diff.is_empty(), "{diff:?}");
    }

    #[test]
    fn groups_that_come_go_or_change_are_told_apart() {
        let diff = changes(
            "h { policy: select } }\n        routing { dport(80) -> g  dport(81) -> h ",
            "k { policy: select } }\n        routing { dport(80) -> g  dport(81) -> k ",
        );
        assert_eq!(diff.groups.added, ["k"]);
        assert_eq!(diff.groups.removed, ["h"]);
        assert!(diff.rules);
        assert_eq!(diff.changed(), ["group.h", "group.k", "routing"]);
        let diff = changes("g { policy: select }", "g { policy: select final: direct }");
        assert_eq!(diff.groups.changed, ["g"]);
        assert!(!diff.rules);
    }

    #[test]
    fn rule_that_leads_elsewhere_or_tests_something_else_is_a_change() {
        assert!(changes("dport(80) -> g", "dport(80) -> h").rules);
        assert!(changes("dport(80)", "dport(82)").rules);
        assert!(changes("-> g", "-> g(must)").rules);
        assert!(changes("fallback: direct", "fallback: block").rules);
    }

    #[test]
    fn node_with_another_server_is_a_changed_node() {
        let diff = changes("127.0.0.1:1080", "127.0.0.1:1081");
        assert_eq!(diff.nodes.changed, ["a"]);
        assert_eq!(diff.changed(), ["node.a"]);
        let diff = changes("a: 'socks5", "b: 'socks5");
        assert_eq!(
            (&diff.nodes.added[..], &diff.nodes.removed[..]),
            (&["b".to_owned()][..], &["a".to_owned()][..])
        );
    }
}
