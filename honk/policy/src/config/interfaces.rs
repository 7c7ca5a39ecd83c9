//! Interface names that say something other than their author meant.

use honk_grammar::diag::Diagnostic;

use super::{decl::Fields, report::Report, value::shortened};

/// Names that a wildcard for LAN interfaces may catch by accident: where the uplink often is.
const UPLINKS: &[&str] = &["eth0", "enp1s0", "ens3", "eno1", "wlan0", "wwan0", "ppp0"];

/// Warns about loopback, and about wildcards that take the uplink too.
pub(super) fn check(report: &mut Report<'_>, fields: &Fields) {
    let list = |key| fields.list(key).unwrap_or_default();
    let mut warn = |key: &str, message: String, help: &str| {
        let place = fields.get(key).map(|entry| entry.value);
        let finding = place.map(|place| {
            Diagnostic::warning("", "interface-name", place, message)
                .help(help)
                .about("global", key)
        });
        report.found(finding);
    };
    for key in ["lan_interface", "wan_interface"] {
        if list(key).iter().any(|name| name == "lo") {
            let message = format!("`{key}`: the loopback interface `lo` is never taken");
            let help = match key {
                "lan_interface" => "name the interfaces that clients are behind",
                _ => "name the uplink, or write `wan_interface: auto`",
            };
            warn(key, message, help);
        }
    }
    let uplinks = list("wan_interface");
    let named = || uplinks.iter().filter(|name| !name.contains(['*', '?']));
    let known = named().any(|name| name != "auto");
    for pattern in list("lan_interface") {
        if !pattern.contains(['*', '?']) {
            continue;
        }
        let caught = named().find(|name| honk_grammar::fits(pattern, name));
        let pattern = shortened(pattern);
        let help = "name the LAN interfaces, or a pattern that only they have";
        match caught {
            Some(name) => {
                let message = format!(
                    "`lan_interface`: `{pattern}` takes `{}` too, which is in `wan_interface`",
                    shortened(name)
                );
                warn("lan_interface", message, help);
            }
            None if !known
                && UPLINKS
                    .iter()
                    .any(|name| honk_grammar::fits(&pattern, name)) =>
            {
                let message = format!(
                    "`lan_interface`: `{pattern}` takes every interface of such a name, the uplink too if it is one"
                );
                warn("lan_interface", message, help);
            }
            None => {}
        }
    }
}
