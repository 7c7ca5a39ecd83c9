//! Links, addresses, routes, rules and neighbours by rtnetlink.
