//! What answers say about the names that sniffing finds.

use std::{net::IpAddr, sync::Arc};

use super::{Dns, lock};
use crate::flow::{ClientAddr, Existence, Names};

/// Names of servers that decrypt Encrypted Client Hello for others.
const FRONTS: [&str; 1] = ["cloudflare-ech.com"];

impl Names for Dns {
    fn meant(&self, client: IpAddr, address: IpAddr) -> Option<Arc<str>> {
        self.heard(client, address)
    }

    fn leased(&self, name: &str, address: IpAddr) -> bool {
        lock(&self.book).leases.holds(address, name)
    }

    fn cached(&self, name: &str) -> bool {
        let now = self.now();
        !lock(&self.book).leases.of_name(now, name).is_empty()
    }

    fn fronts(&self, name: &str) -> bool {
        FRONTS.contains(&name)
    }

    fn exists(&self, _: Arc<str>, _: ClientAddr) -> Option<Existence> {
        // Queries go to the server the client asks; honk has none of its own to ask.
        None
    }
}
