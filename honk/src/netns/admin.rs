//! Gives up `CAP_SYS_ADMIN`, which only the making of namespaces and mounts needs.
//!
//! Capabilities belong to a thread and are inherited by the threads it starts, so each thread
//! that exists by then gives it up itself. The one that may unmount at the end keeps it.

use rustix::{
    io,
    thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities},
};

/// Takes the capability from the calling thread for good. It stays where `CAP_BPF` is missing:
/// there it stands in for it.
pub(crate) fn give_up_admin() {
    if let Err(error) = give_up() {
        tracing::warn!(target: "honk", %error, "a thread keeps CAP_SYS_ADMIN");
    }
}

fn give_up() -> io::Result<()> {
    let mut held = capabilities(None)?;
    if !held.effective.contains(CapabilitySet::BPF) {
        return Ok(());
    }
    // First, because it needs CAP_SETPCAP, which a service may lack: then nothing can be gained
    // by starting another program anyway, and honk starts none.
    let _ = remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN);
    held.effective.remove(CapabilitySet::SYS_ADMIN);
    held.permitted.remove(CapabilitySet::SYS_ADMIN);
    held.inheritable.remove(CapabilitySet::SYS_ADMIN);
    set_capabilities(None, held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_and_those_it_starts_lose_it() {
        let own = || capabilities(None).unwrap();
        let before = own();
        if !before
            .effective
            .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::BPF)
        {
            return eprintln!("skipped: needs root");
        }
        std::thread::spawn(move || {
            give_up_admin();
            let inherited = std::thread::spawn(own).join().unwrap();
            for now in [own(), inherited] {
                assert!(!now.permitted.contains(CapabilitySet::SYS_ADMIN));
                let rest = before.effective.difference(CapabilitySet::SYS_ADMIN);
                assert_eq!(now.effective, rest, "nothing else goes");
            }
        })
        .join()
        .unwrap();
        assert_eq!(own().effective, before.effective);
    }
}
