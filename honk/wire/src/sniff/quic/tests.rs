use super::{super::craft::client_hello, craft::*, *};
use crate::sniff::HostName;

const DCID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn done(name: &str) -> Step {
    Step::Done(Hello {
        name: HostName::parse(name.as_bytes()),
        ech: false,
    })
}

/// The CRYPTO frame of RFC 9001 appendix A.2, which RFC 9369 appendix A.2 uses too.
fn rfc_frames() -> Vec<u8> {
    let mut frames = hex(concat!(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868",
        "04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578",
        "616d706c652e636f6dff01000100000a00080006001d00170018001000070005",
        "04616c706e000500050100000000003300260024001d00209370b2c9caa47fba",
        "baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400",
        "0d0010000e0403050306030203080408050806002d00020101001c0002400100",
        "3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000",
        "75300901100f088394c8f03e51570806048000ffff",
    ));
    frames.resize(1162, 0);
    frames
}

#[test]
fn the_examples_of_the_rfcs() {
    for (version, clear, sealed, tail) in [
        (
            Version::V1,
            "c300000001088394c8f03e5157080000449e00000002",
            "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b",
            "e221af44860018ab0856972e194cd934",
        ),
        (
            Version::V2,
            "d36b3343cf088394c8f03e5157080000449e00000002",
            "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de806071",
            "",
        ),
    ] {
        let keys = Keys::derive(version, &DCID).unwrap();
        let packet = keys.seal(&hex(clear), 4, &rfc_frames()).unwrap();
        assert!(packet.starts_with(&hex(sealed)), "{version:?}");
        assert!(packet.ends_with(&hex(tail)), "{version:?}");
        assert_eq!(packet.len(), 1200);
        assert!(begins(&packet));
        assert_eq!(Session::default().datagram(&packet), done("example.com"));
    }
}

#[test]
fn a_hello_in_two_packets_in_either_order() {
    let message = client_hello(Some("example.com"), false, 1300);
    let (a, b) = message.split_at(700);
    for version in [Version::V1, Version::V2] {
        let packets = [
            initial(version, &DCID, 0, &crypto_frame(0, a)).unwrap(),
            initial(version, &DCID, 1, &crypto_frame(700, b)).unwrap(),
        ];
        for order in [[0, 1], [1, 0]] {
            let mut session = Session::default();
            assert_eq!(session.datagram(&packets[order[0]]), Step::More);
            // A retransmission changes nothing.
            assert_eq!(session.datagram(&packets[order[0]]), Step::More);
            assert_eq!(session.datagram(&packets[order[1]]), done("example.com"));
        }
    }
}

#[test]
fn every_split_and_a_shuffle_of_frames() {
    let message = client_hello(Some("example.com"), false, 0);
    for cut in 1..message.len() {
        let (a, b) = message.split_at(cut);
        // The end first, with a PING between, as browsers do to keep boxes honest.
        let frames = [crypto_frame(cut, b), vec![1], crypto_frame(0, a)].concat();
        let packet = initial(Version::V1, &DCID, 0, &frames).unwrap();
        assert_eq!(
            Session::default().datagram(&packet),
            done("example.com"),
            "{cut}"
        );
    }
}

#[test]
fn coalesced_packets_are_looked_at_one_by_one() {
    let message = client_hello(Some("example.com"), false, 0);
    let (a, b) = message.split_at(50);
    let part = |n, at, data| packet(Version::V1, &DCID, &DCID, n, &crypto_frame(at, data), 100);
    // 0-RTT between: version 1, type 1, no ids, 3 bytes.
    let early = [0xd0, 0, 0, 0, 1, 0, 0, 3, 1, 2, 3];
    let datagram = [
        part(0, 0, a).unwrap(),
        early.to_vec(),
        part(1, 50, b).unwrap(),
    ]
    .concat();
    assert_eq!(Session::default().datagram(&datagram), done("example.com"));
    let cut = &datagram[..datagram.len() - 1];
    assert_eq!(Session::default().datagram(cut), Step::More);
}

#[test]
fn after_a_retry_the_client_starts_over() {
    let message = client_hello(Some("example.com"), false, 1300);
    let (a, b) = message.split_at(700);
    let mut session = Session::default();
    let first = initial(Version::V1, &DCID, 0, &crypto_frame(0, a)).unwrap();
    assert_eq!(session.datagram(&first), Step::More);
    let id = [7; 20];
    let second = initial(Version::V1, &id, 1, &crypto_frame(700, b)).unwrap();
    assert_eq!(
        session.datagram(&second),
        Step::More,
        "the old part is void"
    );
    let third = initial(Version::V1, &id, 2, &crypto_frame(0, a)).unwrap();
    assert_eq!(session.datagram(&third), done("example.com"));
}

#[test]
fn keys_stay_when_the_server_chooses_another_id() {
    let message = client_hello(Some("example.com"), false, 1300);
    let (a, b) = message.split_at(700);
    let mut session = Session::default();
    let first = initial(Version::V2, &DCID, 0, &crypto_frame(0, a)).unwrap();
    assert_eq!(session.datagram(&first), Step::More);
    let frames = crypto_frame(700, b);
    let second = packet(Version::V2, &DCID, &[7; 5], 1, &frames, 1200).unwrap();
    assert_eq!(session.datagram(&second), done("example.com"));
}

#[test]
fn what_is_not_quic_is_foreign_at_once() {
    let good = initial(Version::V1, &DCID, 0, &[0]).unwrap();
    let mut other = good;
    other[4] = 2;
    let negotiation = [0xc0, 0, 0, 0, 0, 0, 0];
    let short = [0x40; 40];
    let retry = [0xf0, 0, 0, 0, 1, 0, 0, 1, 2, 3];
    let long_id = [&[0xc0, 0, 0, 0, 1, 21][..], &[0; 40]].concat();
    for bytes in [
        &[][..],
        b"hello",
        &other,
        &negotiation,
        &short,
        &retry,
        &long_id,
    ] {
        assert!(!begins(bytes), "{bytes:?}");
        assert_eq!(
            Session::default().datagram(bytes),
            Step::Foreign,
            "{bytes:?}"
        );
    }
}

#[test]
fn packets_that_cannot_be_opened_end_the_search() {
    let mut bad = initial(Version::V1, &DCID, 0, &[0]).unwrap();
    bad[700] ^= 1;
    let mut session = Session::default();
    assert_eq!(session.datagram(&bad), Step::More);
    assert_eq!(session.datagram(&bad), Step::Foreign);
}

#[test]
fn the_number_of_packets_is_bounded() {
    let mut session = Session::default();
    for n in 0..MAX_PACKETS as u16 {
        let packet = initial(Version::V1, &DCID, n, &[1]).unwrap();
        assert_eq!(session.datagram(&packet), Step::More);
    }
    let packet = initial(Version::V1, &DCID, 99, &[1]).unwrap();
    assert_eq!(session.datagram(&packet), Step::Foreign);
}

#[test]
fn frames_that_have_no_business_there_end_the_search() {
    // A STREAM frame; a CRYPTO frame that is cut; one beyond the limit.
    for frames in [
        &[8, 0, 1][..],
        &[6, 0, 0x7f, 0xff],
        &[6, 0x80, 0, 0x80, 0, 1, 9],
    ] {
        let mut frames = frames.to_vec();
        if frames[0] == 6 && frames[1] == 0 {
            frames = vec![[6, 0, 0x7f, 0xff]; 300].concat();
        }
        let packet = initial(Version::V1, &DCID, 0, &frames).unwrap();
        assert_eq!(
            Session::default().datagram(&packet),
            Step::Foreign,
            "{frames:?}"
        );
    }
    // ACK with ranges and marks, CONNECTION_CLOSE: allowed and without meaning here.
    let frames = [3, 9, 0, 1, 0, 0, 0, 1, 2, 3, 0x1c, 0, 6, 2, b'n', b'o'];
    let packet = initial(Version::V1, &DCID, 0, &frames).unwrap();
    assert_eq!(Session::default().datagram(&packet), Step::More);
}

#[test]
fn a_hello_without_name_and_another_message() {
    let hello = client_hello(None, false, 0);
    for message in [&hello[..], &[2, 0, 0, 1]] {
        let packet = initial(Version::V1, &DCID, 0, &crypto_frame(0, message)).unwrap();
        assert_eq!(
            Session::default().datagram(&packet),
            Step::Done(Hello::NOTHING)
        );
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_datagrams_never_panic(datagrams: Vec<Vec<u8>>) {
        let mut session = Session::default();
        for datagram in datagrams {
            let _ = session.datagram(&datagram);
        }
    }

    #[test]
    fn arbitrary_frames_never_panic(frames: Vec<u8>, number: u16, id: Vec<u8>) {
        let id = &id[..id.len().min(20)];
        let packet = initial(Version::V2, id, number, &frames).unwrap();
        let _ = Session::default().datagram(&packet);
    }

    #[test]
    fn damaged_packets_never_panic(at in 0_usize..1200, byte: u8, cut in 0_usize..1200) {
        let hello = client_hello(Some("example.com"), false, 0);
        let mut packet = initial(Version::V1, &DCID, 0, &crypto_frame(0, &hello)).unwrap();
        let len = packet.len();
        packet[at % len] = byte;
        let _ = Session::default().datagram(&packet[..cut.min(len)]);
        let _ = Session::default().datagram(&packet);
    }
}
