//! From the event that decides to the kernel's map: a selected node dies at the largest size that
//! honk promises, and all groups must leave it. Both engines run as in the daemon, with virtual
//! time; what is written goes into a map of the real kind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, MapData};
use honk_policy::config::Policy;
use honk_policy::group::GroupTable;
use honk_policy::health::{
    Effects, Event, GroupFacts, Monitor, NodeFacts, Outcome, Probe, Selection, Setup, Subject,
    Urgency,
};
use honk_policy::id::{Family, Network, NodeId, Ordinal};
use honk_policy::time::Moment;

use super::groups;

/// Deaths that are timed.
const DEATHS: usize = 15;
/// Flows that must fail in a row until a node is dead.
const FAILURES: usize = 10;
/// Elements of the kernel's map of group states.
const STATES: u32 = 256 * 6;

/// Median and worst time of a flip in milliseconds.
pub(super) fn milliseconds(nodes: u32, groups: u8) -> Result<(f64, f64)> {
    let mut world = World::new(nodes, groups);
    let mut map: Array<MapData, u32> =
        Array::create(STATES, 0).context("the kernel gave no map")?;
    let mut took = Vec::new();
    for _ in 0..DEATHS {
        took.push(world.death(&mut |index, bits| Ok(map.set(index, bits, 0)?))?);
        world.settle()?;
    }
    took.sort_unstable();
    let ms = |took: Option<&Duration>| took.map_or(0.0, |took| took.as_secs_f64() * 1e3);
    Ok((ms(took.get(DEATHS / 2)), ms(took.last())))
}

/// Where states of groups go.
type Write<'a> = &'a mut dyn FnMut(u32, u32) -> Result<()>;

struct World {
    monitor: Monitor,
    table: GroupTable,
    now: Duration,
    /// Probes that began and did not end.
    running: Vec<Probe>,
    /// What the kernel holds.
    written: HashMap<u32, u32>,
}

impl World {
    /// Groups that all hold all nodes, with every node measured.
    fn new(nodes: u32, groups: u8) -> Self {
        let table = groups::unmeasured(nodes.into(), groups, Policy::UrlTest);
        let ids: Vec<NodeId> = table.nodes().iter().map(|node| node.id).collect();
        let facts = table.groups().map(|group| GroupFacts {
            id: group.id,
            tcp: ids.clone(),
            udp: ids.clone(),
            members: Vec::new(),
            check_url: None,
            automatic: true,
            interval: Duration::from_secs(30),
            idle: None,
            passive: true,
        });
        let setup = Setup {
            groups: facts.collect(),
            nodes: ids
                .iter()
                .map(|&id| NodeFacts {
                    id,
                    families: vec![Family::V4],
                })
                .collect(),
            parallel: 10,
        };
        let mut world = Self {
            monitor: Monitor::new(1),
            table,
            now: Duration::ZERO,
            running: Vec::new(),
            written: HashMap::new(),
        };
        let mut effects = Effects::default();
        world.monitor.configure(setup, Moment::START, &mut effects);
        world.follow(effects);
        // Beyond the time in which a new node is not judged.
        for _ in 0..3 {
            world.answer_all();
            world.now += Duration::from_secs(30);
            world.tick();
        }
        world.answer_all();
        world.publish();
        world
    }

    fn moment(&self) -> Moment {
        Moment::after_start(self.now)
    }

    fn follow(&mut self, effects: Effects) -> Urgency {
        self.running.extend(effects.start);
        effects.urgency
    }

    fn tick(&mut self) {
        let mut effects = Effects::default();
        self.monitor.tick(self.moment(), &mut effects);
        self.follow(effects);
    }

    fn tell(&mut self, event: Event) -> Urgency {
        let mut effects = Effects::default();
        self.monitor.handle(event, self.moment(), &mut effects);
        self.follow(effects)
    }

    /// Answers probes until none is under way: the lower the number of a node, the faster.
    fn answer_all(&mut self) {
        while let Some(probe) = self.running.pop() {
            let latency = match probe.subject {
                Subject::Node { node, .. } => 100 + node.0.as_u128() as u64 * 100,
                Subject::Member { .. } => 0,
            };
            self.tell(Event::Probed {
                probe: probe.id,
                outcome: Outcome::Answer(Duration::from_millis(latency)),
            });
        }
    }

    fn publish(&mut self) {
        let (view, touched) = self.monitor.publish();
        self.table = self.table.judged(Arc::new(view), &touched, 0).table;
        let selections: Vec<Selection> = self
            .table
            .groups()
            .map(|group| {
                let leads = self.table.leads(group.id).unwrap_or_default();
                Selection {
                    group: group.id,
                    tcp: leads.tcp,
                    udp: leads.udp,
                    unseen: leads.unseen,
                }
            })
            .collect();
        self.monitor.selected(&selections);
    }

    fn selected(&self) -> Result<NodeId> {
        let selected = self.table.select(Ordinal(2), Network::Tcp, Family::V4);
        Ok(selected.context("the group selects nothing")?.leaf.id)
    }

    /// The selected node dies by a last failed flow; from there on time counts.
    fn death(&mut self, write: Write<'_>) -> Result<Duration> {
        let (node, family) = (self.selected()?, Family::V4);
        let fails = Event::DialFailed { node, family };
        for _ in 1..FAILURES {
            self.tell(fails);
        }
        // Strikes have moved selections by now: the node is selected because it is the fastest.
        let start = Instant::now();
        let urgency = self.tell(fails);
        let (view, touched) = self.monitor.publish();
        let update = self.table.judged(Arc::new(view), &touched, 0);
        for (index, bits) in update.table.slots() {
            if self.written.insert(index, bits) != Some(bits) {
                write(index, bits)?;
            }
        }
        let took = start.elapsed();
        ensure!(urgency == Urgency::Now, "the death is not urgent");
        self.table = update.table;
        ensure!(self.selected()? != node, "the dead node is selected");
        Ok(took)
    }

    /// Everything that the death asked for is done, and a minute passes.
    fn settle(&mut self) -> Result<()> {
        self.answer_all();
        self.now += Duration::from_secs(60);
        self.publish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_death_moves_all_groups_and_is_written() {
        let mut world = World::new(8, 3);
        let mut written = 0;
        for _ in 0..3 {
            let before = world.selected().unwrap();
            world
                .death(&mut |_, _| {
                    written += 1;
                    Ok(())
                })
                .unwrap();
            assert_ne!(world.selected().unwrap(), before);
            world.settle().unwrap();
        }
        // All states once; afterwards every group has somebody, and nothing is to be written.
        assert_eq!(written, 3 * 6);
    }
}
