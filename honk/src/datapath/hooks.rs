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
    object::{Hook, Place, Programs},
    pins::{HookKey, Pins},
};
use crate::netlink::{Link, Rtnl, Side};

/// Names of honk's `clsact` filters start so.
pub(super) const FILTER_PREFIX: &str = "honk_";

/// An interface that should be hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) place: Place,
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
    place: Place,
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
        let have: BTreeMap<HookKey, Place> = self
            .table
            .iter()
            .filter(|(key, hook)| self.is_alive(rtnl, **key, hook))
            .map(|(key, hook)| (*key, hook.place))
            .collect();
        let known: Vec<HookKey> = self.table.keys().copied().collect();
        for key in known {
            let wanted = targets.get(&key.0).map(|t| t.place);
            if wanted.is_none() || have.get(&key).copied() != wanted {
                self.detach(rtnl, key);
            }
        }
        let mut failed = Vec::new();
        for (key, place) in missing(&have, targets) {
            if let Err(source) = self.attach(rtnl, key, place) {
                let name = targets
                    .get(&key.0)
                    .map_or_else(String::new, |t| t.name.clone());
                failed.push((
                    key.0,
                    Error::Attach {
                        name,
                        program: self.programs.hook(key.1, place).name,
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
            .map(|((_, side), hook)| self.programs.hook(*side, hook.place).name)
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
                let program = &self.programs.hook(*side, hook.place).fd;
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
                let program = self.programs.hook(key.1, hook.place);
                let id = bpf::program_id(program.fd.as_fd()).unwrap_or(0);
                let filters = rtnl.filters(key.0).unwrap_or_default();
                filters.iter().any(|f| f.side == key.1 && f.program == id)
            }
        }
    }

    fn attach(&mut self, rtnl: &mut Rtnl, key: HookKey, place: Place) -> Result<(), Error> {
        let programs = Arc::clone(&self.programs);
        let program = programs.hook(key.1, place);
        let via = match self.inherited.remove(&key) {
            Some(link) => Via::Inherited(link),
            None => self.attach_new(rtnl, key, place, program)?,
        };
        if let (Via::Tcx(link), true, Some(pins)) = (&via, self.live, &self.pins) {
            pins.add(key, link.as_fd())?;
        }
        self.table.insert(key, Attached { place, via });
        Ok(())
    }

    fn attach_new(
        &mut self,
        rtnl: &mut Rtnl,
        key: HookKey,
        place: Place,
        program: &Hook,
    ) -> Result<Via, Error> {
        let (link, side) = key;
        let order = match (place.decides(side), side) {
            // Replies to local processes come in with a mark that others must not see.
            (false, Side::Ingress) => Order::First,
            (true, _) if self.first => Order::First,
            _ => Order::Last,
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
                let id = bpf::program_id(self.programs.hook(key.1, hook.place).fd.as_fd());
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
            .hooks
            .iter()
            .map(|h| &h.fd)
            .chain([&self.programs.dev0, &self.programs.peer])
            .map(|fd| bpf::program_id(fd.as_fd()).map_err(Error::io("identify a program")))
            .collect()
    }
}

/// Hooks that should exist and do not: what watches, on all interfaces, before what decides.
fn missing(have: &BTreeMap<HookKey, Place>, targets: &Targets) -> Vec<(HookKey, Place)> {
    let mut missing: Vec<(HookKey, Place)> = targets
        .iter()
        .flat_map(|(link, t)| Side::BOTH.map(|side| ((*link, side), t.place)))
        .filter(|(key, place)| have.get(key) != Some(place))
        .collect();
    missing.sort_by_key(|(key, place)| place.decides(key.1));
    missing
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
    use super::{
        super::object::{Layer, Role},
        *,
    };

    fn place(layer: Layer, role: Role) -> Place {
        Place { layer, role }
    }

    fn targets(list: &[(u32, Place)]) -> Targets {
        list.iter()
            .map(|(link, place)| {
                let target = Target {
                    name: format!("l{link}"),
                    place: *place,
                };
                (*link, target)
            })
            .collect()
    }

    #[test]
    fn what_watches_comes_before_what_decides() {
        let lan = place(Layer::L2, Role::Lan);
        let wan = place(Layer::L3, Role::Wan);
        let both = place(Layer::L2, Role::Both);
        let plan = missing(
            &BTreeMap::new(),
            &targets(&[(3, lan), (9, wan), (11, both)]),
        );
        let expected = [
            ((3, Side::Egress), lan),
            ((9, Side::Ingress), wan),
            ((3, Side::Ingress), lan),
            ((9, Side::Egress), wan),
        ];
        assert_eq!(plan[..4], expected);
        // On the one interface both sides decide.
        assert!(plan[4..].iter().all(|(key, p)| key.0 == 11 && *p == both));
        assert_eq!(plan.len(), 6);
    }

    #[test]
    fn only_what_is_missing_or_changed_is_attached() {
        let lan = place(Layer::L2, Role::Lan);
        let have = BTreeMap::from([
            ((3, Side::Egress), lan),
            ((3, Side::Ingress), lan),
            ((4, Side::Egress), lan),
        ]);
        let wanted = targets(&[(3, lan), (4, lan)]);
        assert_eq!(missing(&have, &wanted), [((4, Side::Ingress), lan)]);
        for other in [place(Layer::L3, Role::Lan), place(Layer::L2, Role::Wan)] {
            assert_eq!(missing(&have, &targets(&[(3, other)])).len(), 2);
        }
        assert!(missing(&have, &targets(&[])).is_empty());
    }
}
