//! From facts to verdicts, in the order in which things depend on each other. Pure.

mod daemon;
mod net;
mod system;

use super::{Check, facts::Facts};

/// All checks.
pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        system::kernel(facts),
        system::btf(facts),
        system::hooks(facts),
        system::bpffs(facts),
        system::rights(facts),
        system::config(facts),
        daemon::daemon(facts),
        daemon::gate(facts),
        net::private(facts),
    ];
    checks.extend(net::interfaces(facts));
    checks.extend([
        daemon::maps(facts),
        daemon::drops(facts),
        net::frames(facts),
        net::forwarding(facts),
        net::redirects(facts),
        net::advertisements(facts),
        net::firewall(facts),
        net::route(facts),
        net::names(facts),
        net::dns_path(facts),
        daemon::nodes(facts),
        daemon::groups(facts),
        daemon::subscriptions(facts),
        net::queues(facts),
        system::clock(facts),
        system::disk(facts),
    ]);
    checks
}
