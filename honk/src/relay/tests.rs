use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::socket::pipe::PipeBudget;

fn shop() -> Shop {
    Shop::new(PipePool::new(PipeBudget::new(4), 4))
}

/// A relay end and the peer that talks to it.
fn pair() -> (End, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    (End::new(near.into()), peer)
}

struct Bed {
    relay: Relay,
    client: TcpStream,
    server: TcpStream,
    shop: Shop,
    counters: FlowCounters,
}

impl Bed {
    fn new(early: &[u8]) -> Self {
        let ((near_client, client), (near_server, server)) = (pair(), pair());
        Self {
            relay: Relay::new(near_client, near_server, early.to_vec()),
            client,
            server,
            shop: shop(),
            counters: FlowCounters::default(),
        }
    }

    /// One step with everything said to be ready, as after events on both ends.
    fn step(&mut self) -> (Step, u64) {
        for end in [&mut self.relay.client, &mut self.relay.server] {
            end.readable = true;
            end.writable = true;
        }
        self.relay.step(&mut self.shop, &self.counters)
    }
}

fn read(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut buffer = vec![0; n];
    stream.read_exact(&mut buffer).unwrap();
    buffer
}

#[test]
fn early_bytes_of_the_server_come_first() {
    let mut bed = Bed::new(b"early");
    bed.server.write_all(b" late").unwrap();
    assert_eq!(bed.step(), (Step::Wait, 10));
    assert_eq!(read(&mut bed.client, 10), b"early late");
}

#[test]
fn a_short_read_is_not_followed_by_a_useless_one() {
    let mut bed = Bed::new(b"");
    bed.client.write_all(b"ping").unwrap();
    bed.step();
    assert!(
        !bed.relay.client.readable,
        "four bytes did not fill the buffer"
    );
}

#[test]
fn a_blocked_destination_stops_reading_at_the_source() {
    let mut bed = Bed::new(b"");
    bed.server.set_nonblocking(true).unwrap();
    let chunk = vec![1; 1 << 20];
    let mut sent = 0;
    // The client reads nothing: the windows fill, then the relay must leave the rest to the
    // server instead of collecting it.
    loop {
        let written = bed.server.write(&chunk);
        let (step, moved) = bed.step();
        assert_eq!(step, Step::Wait);
        match written {
            Ok(n) => sent += n as u64,
            Err(_) if moved == 0 => break,
            Err(_) => {}
        }
    }
    assert!(bed.relay.client_blocked());
    let delivered = bed.counters.down.load(std::sync::atomic::Ordering::Relaxed);
    let held = sent - delivered;
    assert!(
        held > 0 && delivered > 0,
        "{sent} sent, {delivered} delivered"
    );
    // All of it arrives once the client reads.
    bed.server.shutdown(std::net::Shutdown::Write).unwrap();
    let mut client = bed.client.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all.len() as u64
    });
    while !bed.relay.half_closed() {
        bed.step();
    }
    assert_eq!(reader.join().unwrap(), sent);
}

#[test]
fn a_quiet_relay_owns_neither_buffer_nor_pipe() {
    let mut bed = Bed::new(b"");
    let data = vec![2; 512 << 10];
    let mut server = bed.server.try_clone().unwrap();
    let writer = std::thread::spawn(move || server.write_all(&data).unwrap());
    let mut left: usize = 512 << 10;
    bed.client.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        bed.step();
        left -= bed.client.read(&mut buffer).unwrap_or(0);
    }
    writer.join().unwrap();
    assert!(bed.relay.has_pipe(), "half a megabyte is bulk");
    bed.relay.rest(&mut bed.shop);
    assert!(!bed.relay.has_pipe());
    let spare = bed.shop.pipes.lend();
    assert!(
        spare.is_some_and(|pipe| pipe.held() == 0),
        "it went back to the pool"
    );
}

#[test]
fn both_ends_closing_ends_the_relay_without_a_reset() {
    let mut bed = Bed::new(b"");
    bed.client.write_all(b"bye").unwrap();
    bed.client.shutdown(std::net::Shutdown::Write).unwrap();
    bed.relay.client.hangup = true;
    assert_eq!(bed.step(), (Step::Wait, 3));
    let mut all = Vec::new();
    bed.server.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"bye", "the end follows the data");
    assert!(bed.relay.half_closed());
    bed.server.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bed.step().0, Step::Closed(CloseReason::Eof));
}

#[test]
fn without_splice_bulk_is_copied() {
    let mut bed = Bed::new(b"");
    bed.shop.splice = false;
    let mut server = bed.server.try_clone().unwrap();
    let writer = std::thread::spawn(move || server.write_all(&vec![3; 1 << 20]).unwrap());
    bed.client.set_nonblocking(true).unwrap();
    let (mut left, mut buffer) = (1 << 20, vec![0; 64 << 10]);
    while left > 0 {
        bed.step();
        left -= bed.client.read(&mut buffer).unwrap_or(0);
    }
    writer.join().unwrap();
    assert!(!bed.relay.has_pipe());
}
