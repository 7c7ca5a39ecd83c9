//! Programs on LAN interfaces: which hooks should exist, which do, and the steps between.
//!
//! What exists is asked from the kernel each time, never remembered: interfaces come back under
//! a new index, and scripts delete qdiscs. Before the gate opens, hooks inherited from a dead
//! daemon keep deciding with its programs; opening swaps them in place.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use super::{
    bpf::{self, Order},
    error::Error,
    object::{Hook, Layer, Programs},
    pins::{HookKey, Pins},
};
use crate::netlink::{Link, Rtnl, Side};

/// Names of honk's `clsact` filters start so.
pub(super) const FILTER_PREFIX: &str = "honk_";

/// An interface that should be hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) layer: Layer,
}

/// Interfaces by index.
pub(super) type Targets = BTreeMap<u32, Target>;

/// How programs are attached on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Tcx,
    Clsact,
}

#[derive(Debug)]
enum Via {
    Tcx(OwnedFd),
    /// A dead daemon's link, running its program until the gate opens.
    Inherited(OwnedFd),
    Clsact,
}

#[derive(Debug)]
struct Attached {
    layer: Layer,
    via: Via,
}

/// All hooks on LAN interfaces.
#[derive(Debug)]
pub(super) struct Hooks {
    programs: Arc<Programs>,
    method: Method,
    first: bool,
    table: BTreeMap<HookKey, Attached>,
    inherited: BTreeMap<HookKey, OwnedFd>,
    /// Interfaces that got their `clsact` qdisc from here.
    qdiscs: HashSet<u32>,
    pins: Option<Pins>,
    /// The gate has been open: nothing is inherited any more, new hooks are pinned at once.
    live: bool,
}

impl Hooks {
    /// `pins` is where links of a dead daemon may be, and where ours go if they are to outlive
    /// the process.
    pub(super) fn new(
        programs: Arc<Programs>,
        method: Method,
        first: bool,
        pins: Option<Pins>,
    ) -> Self {
        let inherited = pins.iter().flat_map(Pins::inherit).collect();
        Self {
            programs,
            method,
            first,
            table: BTreeMap::new(),
            inherited,
            qdiscs: HashSet::new(),
            pins,
            live: false,
        }
    }

    /// Brings the hooks to `targets`; returns what failed, by interface index.
    pub(super) fn reconcile(&mut self, rtnl: &mut Rtnl, targets: &Targets) -> Vec<(u32, Error)> {
        let have: BTreeMap<HookKey, Layer> = self
            .table
            .iter()
            .filter(|(key, hook)| self.is_alive(rtnl, **key, hook))
            .map(|(key, hook)| (*key, hook.layer))
            .collect();
        let known: Vec<HookKey> = self.table.keys().copied().collect();
        for key in known {
            let wanted = targets.get(&key.0).map(|t| t.layer);
            if wanted.is_none() || have.get(&key).copied() != wanted {
                self.detach(rtnl, key);
            }
        }
        let mut failed = Vec::new();
        for (key, layer) in missing(&have, targets) {
            if let Err(source) = self.attach(rtnl, key, layer) {
                let name = targets
                    .get(&key.0)
                    .map_or_else(String::new, |t| t.name.clone());
                failed.push((
                    key.0,
                    Error::Attach {
                        name,
                        program: self.programs.lan(key.1, layer).name,
                        source: Box::new(source),
                    },
                ));
            }
        }
        failed
    }

    /// Sides hooked on an interface.
    pub(super) fn sides(&self, link: u32) -> impl Iterator<Item = &'static str> {
        self.table
            .range((link, Side::Ingress)..=(link, Side::Egress))
            .map(|((_, side), hook)| self.programs.lan(*side, hook.layer).name)
    }

    /// The gate is open: our programs take over from inherited ones, and links are pinned,
    /// with the flow table, when they are to outlive the process.
    pub(super) fn go_live(
        &mut self,
        rtnl: &mut Rtnl,
        block: bool,
        flows: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        self.live = true;
        for ((_, side), hook) in &mut self.table {
            if let Via::Inherited(link) = &hook.via {
                let program = &self.programs.lan(*side, hook.layer).fd;
                bpf::update_link(link.as_fd(), program.as_fd())
                    .map_err(Error::io("replace the program of an inherited link"))?;
                let link = link.as_fd().try_clone_to_owned();
                hook.via = Via::Tcx(link.map_err(Error::io("duplicate a link"))?);
            }
        }
        for (key, link) in std::mem::take(&mut self.inherited) {
            let _ = bpf::detach_link(link.as_fd());
            self.pins.iter().for_each(|p| p.drop_pin(key));
        }
        let own = self.own_ids()?;
        remove_filters(rtnl, &own)?;
        if block {
            self.pin_all(flows)
        } else {
            self.unpin_all();
            Ok(())
        }
    }

    /// Takes everything off. Links a dead daemon left stay as they are if the gate never
    /// opened: then nothing has replaced them.
    pub(super) fn detach_all(&mut self, rtnl: &mut Rtnl) {
        let keys: Vec<HookKey> = self.table.keys().copied().collect();
        for key in keys {
            self.detach(rtnl, key);
        }
        for link in std::mem::take(&mut self.qdiscs) {
            remove_empty_qdisc(rtnl, link);
        }
        if self.live {
            self.unpin_all();
        }
    }

    fn is_alive(&self, rtnl: &mut Rtnl, key: HookKey, hook: &Attached) -> bool {
        match &hook.via {
            Via::Tcx(link) | Via::Inherited(link) => {
                bpf::tcx_link(link.as_fd()).ok().flatten() == Some(key)
            }
            Via::Clsact => {
                let program = self.programs.lan(key.1, hook.layer);
                let id = bpf::program_id(program.fd.as_fd()).unwrap_or(0);
                let filters = rtnl.filters(key.0).unwrap_or_default();
                filters.iter().any(|f| f.side == key.1 && f.program == id)
            }
        }
    }

    fn attach(&mut self, rtnl: &mut Rtnl, key: HookKey, layer: Layer) -> Result<(), Error> {
        let programs = Arc::clone(&self.programs);
        let program = programs.lan(key.1, layer);
        let via = match self.inherited.remove(&key) {
            Some(link) => Via::Inherited(link),
            None => self.attach_new(rtnl, key, program)?,
        };
        if let (Via::Tcx(link), true, Some(pins)) = (&via, self.live, &self.pins) {
            pins.add(key, link.as_fd())?;
        }
        self.table.insert(key, Attached { layer, via });
        Ok(())
    }

    fn attach_new(&mut self, rtnl: &mut Rtnl, key: HookKey, program: &Hook) -> Result<Via, Error> {
        let (link, side) = key;
        // The order matters where packets enter; leaving, honk only watches.
        let order = if self.first && side == Side::Ingress {
            Order::First
        } else {
            Order::Last
        };
        match self.method {
            Method::Tcx => bpf::attach_tcx(program.fd.as_fd(), link, side, order)
                .map(Via::Tcx)
                .map_err(Error::io("create a TCX link")),
            Method::Clsact => attach_clsact(rtnl, link, side, program.name, program.fd.as_fd())
                .map(|added| {
                    if added {
                        self.qdiscs.insert(link);
                    }
                    Via::Clsact
                }),
        }
    }

    fn detach(&mut self, rtnl: &mut Rtnl, key: HookKey) {
        let Some(hook) = self.table.remove(&key) else {
            return;
        };
        match hook.via {
            Via::Tcx(link) => {
                let _ = bpf::detach_link(link.as_fd());
                self.pins.iter().for_each(|p| p.drop_pin(key));
            }
            // Not wanted yet: keeps blocking until the gate opens.
            Via::Inherited(link) => {
                if !self.live {
                    self.inherited.insert(key, link);
                }
            }
            Via::Clsact => {
                let id = bpf::program_id(self.programs.lan(key.1, hook.layer).fd.as_fd());
                for filter in rtnl.filters(key.0).unwrap_or_default() {
                    if filter.side == key.1 && id.as_ref().is_ok_and(|id| *id == filter.program) {
                        let _ = rtnl.delete_filter(&filter);
                    }
                }
            }
        }
    }

    fn pin_all(&self, flows: BorrowedFd<'_>) -> Result<(), Error> {
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        pins.prepare()?;
        pins.set_mode("block")?;
        pins.add_flows(flows)?;
        for (key, hook) in &self.table {
            if let Via::Tcx(link) = &hook.via {
                pins.add(*key, link.as_fd())?;
            }
        }
        Ok(())
    }

    fn unpin_all(&mut self) {
        if let Some(pins) = self.pins.take() {
            for key in self.table.keys() {
                pins.drop_pin(*key);
            }
            pins.remove_dirs();
        }
    }

    fn own_ids(&self) -> Result<HashSet<u32>, Error> {
        self.programs
            .lan
            .iter()
            .map(|h| &h.fd)
            .chain([&self.programs.dev0, &self.programs.peer])
            .map(|fd| bpf::program_id(fd.as_fd()).map_err(Error::io("identify a program")))
            .collect()
    }
}

/// Hooks that should exist and do not: egress of all interfaces before any ingress.
fn missing(have: &BTreeMap<HookKey, Layer>, targets: &Targets) -> Vec<(HookKey, Layer)> {
    [Side::Egress, Side::Ingress]
        .into_iter()
        .flat_map(|side| {
            targets
                .iter()
                .map(move |(link, t)| ((*link, side), t.layer))
        })
        .filter(|(key, layer)| have.get(key) != Some(layer))
        .collect()
}

/// Adds a filter, and the qdisc it needs; says whether the qdisc is new.
pub(super) fn attach_clsact(
    rtnl: &mut Rtnl,
    link: u32,
    side: Side,
    name: &str,
    program: BorrowedFd<'_>,
) -> Result<bool, Error> {
    let added = rtnl.ensure_clsact(link)?;
    rtnl.add_filter(link, side, &format!("{FILTER_PREFIX}{name}"), program)?;
    Ok(added)
}

/// Removes honk's filters from all interfaces, but those of the programs in `keep`; a qdisc
/// that becomes empty goes too. Says how many filters there were.
pub(super) fn remove_filters(rtnl: &mut Rtnl, keep: &HashSet<u32>) -> Result<usize, Error> {
    let mut count = 0;
    for Link { index, .. } in rtnl.links()? {
        let filters = rtnl.filters(index)?;
        let stale = filters
            .iter()
            .filter(|f| f.name.starts_with(FILTER_PREFIX) && !keep.contains(&f.program));
        let mut removed = 0;
        for filter in stale {
            rtnl.delete_filter(filter)?;
            removed += 1;
        }
        if removed > 0 {
            remove_empty_qdisc(rtnl, index);
        }
        count += removed;
    }
    Ok(count)
}

fn remove_empty_qdisc(rtnl: &mut Rtnl, link: u32) {
    if rtnl.filters(link).is_ok_and(|f| f.is_empty()) {
        // Somebody may have taken it away already.
        let _ = rtnl.delete_clsact(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(list: &[(u32, Layer)]) -> Targets {
        list.iter()
            .map(|(link, layer)| {
                let target = Target {
                    name: format!("l{link}"),
                    layer: *layer,
                };
                (*link, target)
            })
            .collect()
    }

    #[test]
    fn egress_comes_before_ingress() {
        let plan = missing(
            &BTreeMap::new(),
            &targets(&[(3, Layer::L2), (9, Layer::L3)]),
        );
        let expected = [
            ((3, Side::Egress), Layer::L2),
            ((9, Side::Egress), Layer::L3),
            ((3, Side::Ingress), Layer::L2),
            ((9, Side::Ingress), Layer::L3),
        ];
        assert_eq!(plan, expected);
    }

    #[test]
    fn only_what_is_missing_or_changed_is_attached() {
        let have = BTreeMap::from([
            ((3, Side::Egress), Layer::L2),
            ((3, Side::Ingress), Layer::L2),
            ((4, Side::Egress), Layer::L2),
        ]);
        let wanted = targets(&[(3, Layer::L2), (4, Layer::L2)]);
        assert_eq!(missing(&have, &wanted), [((4, Side::Ingress), Layer::L2)]);
        let changed = targets(&[(3, Layer::L3)]);
        assert_eq!(missing(&have, &changed).len(), 2);
        assert!(missing(&have, &targets(&[])).is_empty());
    }
}
