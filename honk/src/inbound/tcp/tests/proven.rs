//! Flows through a server that takes all messages of the handshake at once.

use super::*;

/// Answers greeting and request in pieces of `size` bytes, with a banner behind.
fn banner_node(size: usize) -> SocketAddr {
    play(move |mut stream| {
        // 05 01 00, then 05 CMD 00 01 and six bytes of address and port.
        let mut greeting = [0; 3];
        if stream.read_exact(&mut greeting).is_err() {
            return;
        }
        let mut request = [0; 10];
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let at_once = stream.read_exact(&mut request).is_ok();
        let mut answer = vec![5, 0];
        if !at_once {
            stream.write_all(&answer).unwrap();
            stream.set_read_timeout(None).unwrap();
            stream.read_exact(&mut request).unwrap();
            answer.clear();
        }
        answer.extend_from_slice(&OK_REPLY);
        if request[1] == 1 {
            answer.extend_from_slice(b"banner");
        }
        for piece in answer.chunks(size) {
            stream.write_all(piece).unwrap();
        }
        stream.set_read_timeout(None).unwrap();
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    })
}

#[test]
fn bytes_behind_the_answer_arrive_once_and_first() {
    for size in [1, 3, 64] {
        let node = socks5(banner_node(size), None);
        let bed = bed(World::through(Arc::clone(&node)));
        let state = bed.loops.shared.dialer.server(&node);
        for pipelined in [false, true, true] {
            // The client speaks before the answer is here, so that its bytes wait for it.
            let mut client = bed.client();
            client.write_all(b"hello").unwrap();
            assert_eq!(take(&mut client, 11), b"bannerhello", "pieces of {size}");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(take(&mut client, 0), b"");
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"");
            if !pipelined {
                until("the test of the server", || {
                    state.mode() == honk_wire::socks5::Mode::Pipelined
                });
            }
        }
    }
}

#[test]
fn a_server_that_ends_at_once_ends_the_flow_after_its_bytes() {
    let node = {
        let addr = play(|mut stream| {
            let request = greet(&mut stream, None);
            let _ = stream.write_all(&OK_REPLY);
            if request.get(1) == Some(&1) {
                let _ = stream.write_all(b"bye");
            }
        });
        socks5(addr, None)
    };
    let bed = bed(World::through(Arc::clone(&node)));
    let state = bed.loops.shared.dialer.server(&node);
    for n in 1..=20 {
        let mut client = bed.client();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"bye", "flow {n}");
        drop(client);
        let closed = bed.world.wait_closed(n);
        assert_eq!(closed[n - 1].1, CloseReason::Eof, "flow {n}");
        if n == 1 {
            until("the test of the server", || {
                state.mode() == honk_wire::socks5::Mode::Pipelined
            });
        }
    }
}

#[test]
fn a_node_that_holds_answers_back_is_noticed() {
    let addr = play(|mut stream| {
        // Nagle is on for accepted sockets: the reply waits until the method is acknowledged.
        let request = greet(&mut stream, None);
        let _ = stream.write_all(&OK_REPLY);
        if request.get(1) == Some(&1) {
            let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
        }
        take(&mut stream, 1);
    });
    let node = socks5(addr, None);
    let bed = bed(World::through(Arc::clone(&node)));
    exchange(&mut bed.client(), b"first");
    let state = bed.loops.shared.dialer.server(&node);
    until("the test of the server", || state.holds_back());
    // Delayed acknowledgements would cost every flow 40 ms; a busy machine only some.
    until("a flow without a delayed acknowledgement", || {
        let begun = Instant::now();
        exchange(&mut bed.client(), b"again");
        begun.elapsed() < Duration::from_millis(35)
    });
}
