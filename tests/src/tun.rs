//! A cable without Ethernet: two TUN devices in two namespaces, and a thread that carries packets
//! from one to the other.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

use crate::kernel::Tap;
use crate::netns::Netns;

/// How long the thread takes to notice that it should end.
const STEP_MS: i32 = 100;

/// The cable; both devices go with it.
#[derive(Debug)]
pub struct Cable {
    stop: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Cable {
    /// Makes a device in each namespace; addresses and state are up to the caller.
    pub fn lay(one: (&Netns, &str), other: (&Netns, &str)) -> Result<Self> {
        let ends = [
            one.0.run(|| Tap::tun(one.1))?,
            other.0.run(|| Tap::tun(other.1))?,
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || carry(&ends, &stop)
        });
        Ok(Self {
            stop,
            carrier: Some(carrier),
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}

fn carry(ends: &[Tap; 2], stop: &AtomicBool) {
    let mut packet = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let mut polled = [&ends[0], &ends[1]].map(|end| libc::pollfd {
            fd: end.file().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two live entries, as the count says.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, STEP_MS) };
        for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            while let Ok(length) = from.file().read(&mut packet) {
                // A device that is down takes nothing, like an unplugged cable.
                let _ = to.file().write(&packet[..length]);
            }
        }
    }
}
