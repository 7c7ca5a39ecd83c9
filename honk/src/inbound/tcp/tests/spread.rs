//! Bulk flows move to the loop with less to do; servers prove that they read ahead.

use std::sync::atomic::AtomicBool;

use super::*;

/// Ends the clients, also when an assertion fails: the scope waits for their threads.
struct Stop(AtomicBool);

struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn bulk_flows_are_spread_over_the_loops() {
    let origin = play(|mut s| {
        // Streams until the client goes away.
        let chunk = vec![5; 64 << 10];
        while s.write_all(&chunk).is_ok() {}
    });
    let bed = bed(World::refusing(Refusal::Blocked));
    let stop = Stop(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        for _ in 0..4 {
            let (mut client, stop) = (bed.direct_client(origin), &stop);
            scope.spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while !stop.0.load(Ordering::SeqCst) {
                    let n = client.read(&mut buffer).unwrap();
                    assert!(n > 0 && buffer[..n].iter().all(|&b| b == 5));
                }
            });
        }
        // All four were given to the first loop; two that turn bulk at the same moment may both
        // stay where they are.
        until("flows on both loops", || {
            let counts = bed.loops.balance.counts();
            counts.iter().sum::<usize>() == 4 && counts.iter().all(|n| *n > 0)
        });
        for entry in bed.world.live() {
            let before = entry.counters.down.load(Ordering::SeqCst);
            until("every flow goes on", || {
                entry.counters.down.load(Ordering::SeqCst) > before + (1 << 20)
            });
        }
        drop(end);
    });
    bed.world.wait_closed(4);
    until("no flow is counted any more", || {
        bed.loops.balance.counts() == [0, 0]
    });
}

#[test]
fn a_node_that_hangs_up_on_the_test_has_read_it() {
    // Knows CONNECT only, and closes on anything else.
    let addr = play(|mut stream| {
        let request = greet(&mut stream, None);
        if request.get(1) == Some(&1) {
            let _ = stream.set_nodelay(true);
            let _ = stream.write_all(&OK_REPLY);
            let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
        }
    });
    let node = socks5(addr, None);
    let bed = bed(World::through(Arc::clone(&node)));
    exchange(&mut bed.client(), b"first");
    let state = bed.loops.shared.dialer.server(&node);
    until("the test of the server", || {
        state.mode() == honk_wire::socks5::Mode::Pipelined
    });
    exchange(&mut bed.client(), b"second");
}
