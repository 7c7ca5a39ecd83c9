//! Choices of selectors and pins of automatic groups on their way to the state directory and
//! back.

use honk_policy::{
    group::{Group, GroupTable, Member, Scope},
    id::{MemberId, Network},
};

use crate::{
    clock,
    state::choices::{Choices, Chosen, Record},
};

/// What a table would have to be told again after a restart with the configuration of that
/// revision.
pub(crate) fn stored(groups: &GroupTable, revision: &str) -> Choices {
    let record = |g: &Group| {
        let of = |network| g.chosen(network).and_then(|id| chosen(g, id));
        let record = Record::new(of(Network::Tcp), of(Network::Udp))?;
        let record = match g.is_automatic() {
            true => record.pinned(revision),
            false => record,
        };
        Some((g.name.to_string(), record))
    };
    groups.groups().filter_map(record).collect()
}

fn chosen(group: &Group, id: MemberId) -> Option<Chosen> {
    let member = group.members.iter().find(|m| m.id() == id)?;
    let tag = member.name().to_owned();
    Some(match member {
        Member::Node(node) => Chosen::Node {
            id: node.id.0.to_string(),
            tag,
        },
        Member::Group { .. } => Chosen::Group { tag },
    })
}

/// The table with stored choices made again, and those whose group or member is not there, or
/// which are pins of another configuration. A choice that was made since wins over a stored one.
pub(crate) fn restore(
    mut groups: GroupTable,
    choices: &Choices,
    revision: &str,
) -> (GroupTable, Choices) {
    let now = clock::now_ms();
    let mut left = Choices::new();
    for (name, record) in choices {
        let pinned_here = |g: &Group| match &record.pin_revision {
            Some(pinned) => g.is_automatic() && pinned == revision,
            None => !g.is_automatic(),
        };
        let mut missing = [None, None];
        for (n, (scope, network, wanted)) in [
            (Scope::Tcp, Network::Tcp, &record.tcp),
            (Scope::Udp, Network::Udp, &record.udp),
        ]
        .into_iter()
        .enumerate()
        {
            let Some(wanted) = wanted else { continue };
            let group = groups.group_named(name);
            if group.is_some_and(|g| g.chosen(network).is_some()) {
                continue;
            }
            let group = group.filter(|g| pinned_here(g));
            let found = group.and_then(|g| Some((g.id, member(g, wanted)?)));
            let made = found.and_then(|(id, member)| groups.choose(id, scope, member, now).ok());
            match made {
                Some(choice) => groups = choice.table,
                None => missing[n] = Some(wanted.clone()),
            }
        }
        let [tcp, udp] = missing;
        left.extend(record.with(tcp, udp).map(|record| (name.clone(), record)));
    }
    (groups, left)
}

/// Tells that these are not made any more; nothing is left.
pub(crate) fn given_up(choices: &Choices) -> Choices {
    for (group, wanted) in choices {
        tracing::info!(target: "honk::group", group, ?wanted, "a stored choice is gone");
    }
    Choices::new()
}

/// Adds choices that wait for their member, where none was made since.
pub(crate) fn join(choices: &mut Choices, waiting: &Choices) {
    for (name, record) in waiting {
        let made = choices.remove(name);
        let (tcp, udp) = made.map_or((None, None), |made| (made.tcp, made.udp));
        let tcp = tcp.or_else(|| record.tcp.clone());
        let udp = udp.or_else(|| record.udp.clone());
        choices.extend(record.with(tcp, udp).map(|record| (name.clone(), record)));
    }
}

/// By identity among the direct members, else the first of that name and kind.
fn member(group: &Group, wanted: &Chosen) -> Option<MemberId> {
    let mut members = group.members.iter();
    let found = match wanted {
        Chosen::Node { id, tag } => {
            let nodes = || {
                group
                    .members
                    .iter()
                    .filter(|m| matches!(m, Member::Node(_)))
            };
            nodes()
                .find(|m| m.id().uuid().to_string() == *id)
                .or_else(|| nodes().find(|m| m.name() == tag))
        }
        Chosen::Group { tag } => {
            members.find(|m| matches!(m, Member::Group { .. }) && m.name() == tag)
        }
    };
    found.map(Member::id)
}

#[cfg(test)]
mod tests {
    use honk_policy::id::Family;

    use super::*;
    use crate::app::{
        select::Change,
        testkit::{CONFIG, World},
    };

    async fn choose(world: &World, member: &str, scope: Scope) {
        let snapshot = world.engine.snapshot();
        let group = snapshot.groups.group_named("proxy").unwrap();
        let change = Change {
            group: group.id,
            scope,
            member: Some(group.member_named(member).unwrap().id()),
            interrupt: None,
        };
        world.engine.select(change).await.unwrap();
    }

    fn leaves(groups: &GroupTable) -> [String; 2] {
        let slot = groups.group_named("proxy").unwrap().slot;
        let leaf = |n| {
            groups
                .select(slot, n, Family::V4)
                .unwrap()
                .leaf
                .name
                .clone()
        };
        [leaf(Network::Tcp), leaf(Network::Udp)]
    }

    #[tokio::test]
    async fn a_new_process_makes_the_same_choices() {
        let world = World::new(CONFIG);
        choose(&world, "b", Scope::Udp).await;
        let choices = stored(&world.engine.snapshot().groups, "r");
        let other = World::new(CONFIG);
        let (groups, left) = restore(other.engine.snapshot().groups.clone(), &choices, "r");
        assert!(left.is_empty());
        assert_eq!(leaves(&groups), ["a", "b"]);
        assert_eq!(stored(&groups, "r"), choices);
    }

    #[tokio::test]
    async fn a_node_with_another_address_is_found_by_name_and_one_that_is_gone_is_not() {
        let world = World::new(CONFIG);
        choose(&world, "b", Scope::Both).await;
        let choices = stored(&world.engine.snapshot().groups, "r");
        let moved = World::new(&CONFIG.replace("192.0.2.2", "192.0.2.99"));
        let (groups, _) = restore(moved.engine.snapshot().groups.clone(), &choices, "r");
        assert_eq!(leaves(&groups), ["b", "b"]);
        let gone = World::new(&CONFIG.replace("name(a, b)", "name(a)"));
        let (groups, left) = restore(gone.engine.snapshot().groups.clone(), &choices, "r");
        assert_eq!(left, choices);
        assert_eq!(leaves(&groups), ["a", "a"]);
        assert!(stored(&groups, "r").is_empty());
    }

    #[tokio::test]
    async fn what_was_chosen_since_wins_over_what_was_stored() {
        let world = World::new(CONFIG);
        choose(&world, "b", Scope::Both).await;
        let choices = stored(&world.engine.snapshot().groups, "r");
        let other = World::new(CONFIG);
        choose(&other, "a", Scope::Tcp).await;
        let (groups, _) = restore(other.engine.snapshot().groups.clone(), &choices, "r");
        assert_eq!(leaves(&groups), ["a", "b"]);
    }

    #[tokio::test]
    async fn changes_are_written_and_the_file_follows_a_reload() {
        let world = World::new(CONFIG);
        let read = || crate::state::choices::load(&world.choices()).unwrap();
        world.engine.save_choices().await;
        assert!(!world.choices().exists(), "nothing was chosen");
        choose(&world, "b", Scope::Tcp).await;
        world.engine.save_choices().await;
        assert!(read()["proxy"].tcp.is_some() && read()["proxy"].udp.is_none());
        world.edit(&CONFIG.replace("name(a, b)", "name(a)"));
        world
            .engine
            .reload(crate::app::reload::Trigger::Api, false)
            .await
            .unwrap();
        world.engine.save_choices().await;
        assert!(read().is_empty());
    }

    // G-150
    #[tokio::test]
    async fn a_pin_comes_back_under_the_configuration_it_was_made_under_only() {
        let config = CONFIG.replace("policy: select", "policy: fallback");
        let world = World::new(&config);
        choose(&world, "b", Scope::Both).await;
        let choices = stored(&world.engine.snapshot().groups, "r");
        let other = World::new(&config);
        let fresh = other.engine.snapshot().groups.clone();
        let again = |revision| leaves(&restore(fresh.clone(), &choices, revision).0);
        assert_eq!(again("r"), ["b", "b"]);
        assert_eq!(again("s"), ["a", "a"]);
        // A selector does not take over what was a pin.
        let selector = World::new(CONFIG);
        let (groups, _) = restore(selector.engine.snapshot().groups.clone(), &choices, "r");
        assert_eq!(leaves(&groups), ["a", "a"]);
    }
}
