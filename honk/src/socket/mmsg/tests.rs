use std::net::UdpSocket;

use super::*;

fn pair(ip: &str) -> (UdpSocket, UdpSocket) {
    let bind = || UdpSocket::bind((ip, 0)).unwrap();
    (bind(), bind())
}

#[test]
fn a_batch_keeps_boundaries_and_sources() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = pair(ip);
        let to = b.local_addr().unwrap();
        let big = vec![7u8; 60_000];
        let payloads: [&[u8]; 4] = [b"one", b"", &big, b"four"];
        let batch = payloads.map(|payload| Outgoing {
            to: Some(to),
            from: None,
            header: b"h:",
            payload,
        });
        assert_eq!(send(&a, &batch, &Joining::default()).unwrap(), 4);
        let mut recv = RecvBatch::new();
        assert_eq!(recv.recv(&b).unwrap(), 4);
        for (got, sent) in recv.iter().zip(payloads) {
            assert_eq!(got.payload, [b"h:", sent].concat());
            assert_eq!(got.source, Some(a.local_addr().unwrap()));
            assert!(!got.cut && !got.control_cut);
        }
        let empty = recv.recv(&b).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn the_destination_record_is_found() {
    for (ip, v6) in [("127.0.0.1", V6::No), ("::1", V6::Yes)] {
        let (a, b) = pair(ip);
        want_original_dst(&b, v6).unwrap();
        let to = b.local_addr().unwrap();
        a.send_to(b"x", to).unwrap();
        let mut recv = RecvBatch::new();
        recv.recv(&b).unwrap();
        let got = recv.iter().next().unwrap();
        let dst = crate::socket::origdst::parse(got.control, got.control_cut);
        assert_eq!(dst, Ok(to));
    }
}

#[test]
fn the_source_address_is_chosen_per_datagram() {
    let a = UdpSocket::bind("0.0.0.0:0").unwrap();
    let b = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sources = ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let batch = sources.map(|from| Outgoing {
        to: Some(b.local_addr().unwrap()),
        from: Some(from),
        header: &[],
        payload: b"x",
    });
    assert_eq!(send(&a, &batch, &Joining::default()).unwrap(), 2);
    let mut recv = RecvBatch::new();
    recv.recv(&b).unwrap();
    let got: Vec<_> = recv.iter().map(|d| d.source.unwrap().ip()).collect();
    assert_eq!(got, sources);
}

#[test]
fn an_ipv6_source_control_is_accepted() {
    let (a, b) = pair("::1");
    let out = Outgoing {
        to: Some(b.local_addr().unwrap()),
        from: Some("::1".parse().unwrap()),
        header: &[],
        payload: b"x",
    };
    assert_eq!(send(&a, &[out], &Joining::default()).unwrap(), 1);
    assert_eq!(RecvBatch::new().recv(&b).unwrap(), 1);
}

#[test]
fn equal_datagrams_travel_joined_and_come_apart_again() {
    for (ip, v6) in [("127.0.0.1", V6::No), ("::1", V6::Yes)] {
        let (a, b) = pair(ip);
        want_joined(&b).unwrap();
        want_original_dst(&b, v6).unwrap();
        let to = b.local_addr().unwrap();
        let sizes = [
            1200, 1200, 1200, 7, 1200, 1200, 900, 900, 0, 1, 1, 0, 3000, 3000,
        ];
        let data: Vec<Vec<u8>> = (0..).zip(sizes).map(|(n, size)| vec![n; size]).collect();
        let batch: Vec<_> = data
            .iter()
            .map(|payload| Outgoing {
                to: Some(to),
                from: Some(a.local_addr().unwrap().ip()),
                header: &[],
                payload,
            })
            .collect();
        let mut runs = [0; BATCH];
        let count = join(&batch, &mut runs);
        assert_eq!(runs[..count], [4, 3, 1, 1, 2, 1, 1, 1]);
        let joining = Joining::default();
        assert_eq!(send(&a, &batch, &joining).unwrap(), sizes.len());
        assert!(!joining.is_off());
        let mut recv = RecvBatch::new();
        assert_eq!(recv.recv(&b).unwrap(), count, "messages");
        assert_eq!(recv.joined(), 3);
        let mut got = recv.iter();
        for want in &data {
            let datagram = got.next().unwrap();
            assert_eq!(datagram.payload, want);
            assert_eq!(datagram.source, Some(a.local_addr().unwrap()));
            let dst = crate::socket::origdst::parse(datagram.control, datagram.control_cut);
            assert_eq!(dst, Ok(to));
        }
        assert!(got.next().is_none());
    }
}

#[test]
fn headers_are_part_of_joined_datagrams() {
    let (a, b) = pair("127.0.0.1");
    a.connect(b.local_addr().unwrap()).unwrap();
    let bodies: Vec<[u8; 3]> = (0..BATCH as u8).map(|n| [n; 3]).collect();
    let batch: Vec<_> = bodies
        .iter()
        .map(|payload| Outgoing {
            to: None,
            from: None,
            header: b"head:",
            payload,
        })
        .collect();
    // The receiver has not asked for joined ones: the kernel takes them apart.
    assert_eq!(send(&a, &batch, &Joining::default()).unwrap(), BATCH);
    let mut recv = RecvBatch::new();
    assert_eq!((recv.recv(&b).unwrap(), recv.joined()), (BATCH, 0));
    for (got, body) in recv.iter().zip(&bodies) {
        assert_eq!(got.payload, [&b"head:"[..], body].concat());
    }
}

#[test]
fn what_cannot_leave_joined_leaves_one_by_one() {
    let (a, b) = pair("127.0.0.1");
    // No checksums: the kernel refuses to cut such datagrams.
    let on: libc::c_int = 1;
    // SAFETY: the option value is a c_int that lives over the call, its size is passed.
    let rc = unsafe {
        libc::setsockopt(
            a.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    assert_eq!(rc, 0);
    let payload = [9; 100];
    let out = Outgoing {
        to: Some(b.local_addr().unwrap()),
        from: None,
        header: &[],
        payload: &payload,
    };
    let joining = Joining::default();
    assert_eq!(send(&a, &[out; 3], &joining).unwrap(), 3);
    assert!(joining.is_off(), "not tried again");
    let mut recv = RecvBatch::new();
    assert_eq!(recv.recv(&b).unwrap(), 3);
    assert!(recv.iter().all(|d| d.payload == payload));
}

#[test]
fn an_address_survives_the_round_trip() {
    for text in ["192.0.2.1:53", "[2001:db8::1]:443"] {
        let addr: SocketAddr = text.parse().unwrap();
        assert_eq!(from_storage(&to_storage(addr).0), Some(addr));
    }
}
