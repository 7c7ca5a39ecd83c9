use std::net::IpAddr;

use proptest::prelude::*;

use super::{
    kind::{A, AAAA, CNAME, HTTPS},
    testkit::{QNAME, ask, plain, reply, with_opt},
    *,
};

fn name(text: &str) -> Name {
    Name::read(&plain(text), 0).unwrap().0
}

fn read(question: &[u8], bytes: &[u8]) -> Result<Answer, Rejected> {
    let query = Query::read(question).unwrap();
    read_answer(query.id, &query.name, query.kind, bytes)
}

fn addresses(answer: Result<Answer, Rejected>) -> Vec<(String, u32)> {
    match answer {
        Ok(Answer::Addresses { list, .. }) => list
            .iter()
            .map(|l| (l.address.to_string(), l.ttl))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_query_is_read_and_others_are_not() {
    let good = ask("Www.Example.com", A);
    let query = Query::read(&good).unwrap();
    assert_eq!((query.id, query.kind, query.edns), (0x1234, A, None));
    assert_eq!(query.name.text(), "www.example.com");

    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Query::read(&bytes).is_some()
    };
    assert!(!with(2, 0x81), "a response");
    assert!(!with(2, 0x29), "opcode 5");
    assert!(!with(5, 0), "no question");
    assert!(!with(5, 2), "two questions");
    assert!(!with(7, 1), "an answer section");
    assert!(!with(9, 1), "an authority section");
    assert!(!with(11, 1), "a record that is not there");
    assert!(!with(12, 0xc0), "a compressed question");
    assert!(!with(good.len() - 1, 3), "class CH");
    for kind in [kind::AXFR, kind::IXFR] {
        assert!(Query::read(&ask("a.example", kind)).is_none());
    }
    for len in 0..good.len() {
        assert!(Query::read(&good[..len]).is_none(), "{len}");
    }
    let trailing = [&good[..], b"xyz"].concat();
    assert!(Query::read(&trailing).is_some(), "trailing bytes");
}

#[test]
fn edns_is_read_and_two_of_it_are_refused() {
    let once = with_opt(ask("a.example", A), 1400, 0x8000);
    let edns = Query::read(&once).unwrap().edns.unwrap();
    assert_eq!((edns.size, edns.dnssec, edns.version), (1400, true, 0));
    assert!(Query::read(&with_opt(once, 1400, 0)).is_none());
}

#[test]
fn odd_bytes_of_labels_separate_nothing() {
    let wire = b"\x05a.b\\c\x02\xc3\xa4\x03com\0";
    let (name, end) = Name::read(wire, 0).unwrap();
    assert_eq!(end, wire.len());
    assert_eq!(name.text(), "a\\046b\\092c.\\195\\164.com");
    assert_eq!(Name::read(b"\0", 0).unwrap().0.text(), "");
}

#[test]
fn names_are_bounded() {
    let long = "x".repeat(63);
    let fits = format!("{long}.{long}.{long}.{}", "x".repeat(61));
    assert!(Name::read(&plain(&fits), 0).is_some());
    let over = format!("{long}.{long}.{long}.{}", "x".repeat(62));
    assert!(Name::read(&plain(&over), 0).is_none());
    // Strictly backwards: neither itself nor forwards.
    assert!(Name::read(&[0xc0, 0], 0).is_none());
    assert!(Name::read(&[0xc0, 2, 0], 0).is_none());
    assert!(Name::read(&[1, b'a', 0xc0, 0], 0).is_none(), "a circle");
    let (found, end) = Name::read(&[1, b'a', 0, 1, b'b', 0xc0, 0], 3).unwrap();
    assert_eq!((found.text().as_str(), end), ("b.a", 7));
    assert!(Name::read(&[0x40, 0], 0).is_none(), "a reserved length");
}

#[test]
fn long_pointer_chains_end() {
    let chain = |jumps: usize| {
        let mut bytes = vec![0_u8];
        for n in 0..jumps {
            let to = if n == 0 { 0 } else { 2 * n - 1 };
            bytes.extend((0xc000 | to as u16).to_be_bytes());
        }
        Name::read(&bytes, bytes.len() - 2).is_some()
    };
    assert!(chain(128));
    assert!(!chain(129));
}

#[test]
fn addresses_of_the_name_and_its_aliases_count_and_no_others() {
    let question = ask("www.example.com", A);
    let message = reply(
        &question,
        0,
        &[
            // The address comes before the alias that leads to it.
            (&plain("cdn.example"), A, 60, &[192, 0, 2, 1]),
            (QNAME, CNAME, 30, &plain("cdn.example")),
            (&plain("evil.example"), A, 60, &[192, 0, 2, 9]),
            (&plain("cdn.example"), AAAA, 0x8000_0001, &[1; 16]),
        ],
    );
    assert_eq!(
        addresses(read(&question, &message)),
        [
            ("192.0.2.1".into(), 60),
            ("101:101:101:101:101:101:101:101".into(), 0)
        ]
    );
}

#[test]
fn the_case_of_the_echo_may_differ_and_nothing_else() {
    let question = ask("www.Example.com", A);
    let records: &[(&[u8], u16, u32, &[u8])] = &[(QNAME, A, 9, &[10, 0, 0, 1])];
    let mut message = reply(&question, 0, records);
    message[13] = b'W';
    assert_eq!(addresses(read(&question, &message)).len(), 1);
    for (at, what) in [(0, "id"), (14, "name"), (question.len() - 3, "type")] {
        let mut other = message.clone();
        other[at] ^= 1;
        assert_eq!(read(&question, &other), Err(Rejected::Foreign), "{what}");
    }
    assert_eq!(
        read(&question, &question),
        Err(Rejected::Foreign),
        "a query"
    );
    assert_eq!(read(&question, b""), Err(Rejected::Foreign));
}

#[test]
fn answers_without_addresses_are_told_apart() {
    let question = ask("www.example.com", A);
    let flags = |flags| read(&question, &reply(&question, flags, &[]));
    assert_eq!(flags(0), Ok(Answer::Negative), "no record");
    assert_eq!(flags(3), Ok(Answer::Negative));
    assert_eq!(flags(2), Ok(Answer::Nothing));
    assert_eq!(flags(0x0200), Ok(Answer::Truncated));
    let other = ask("www.example.com", 16);
    let answer = read(&other, &reply(&other, 0, &[(QNAME, 16, 5, b"\x01x")]));
    assert_eq!(addresses(answer), []);
    // An alias that leads nowhere is a name without addresses.
    let dangling = reply(&question, 0, &[(QNAME, CNAME, 5, &plain("x.example"))]);
    assert_eq!(read(&question, &dangling), Ok(Answer::Negative));

    let mut unread = reply(&question, 1, &[]);
    unread[5] = 0;
    assert_eq!(read(&question, &unread[..12]), Ok(Answer::Nothing));
    unread[3] = 0;
    assert_eq!(read(&question, &unread[..12]), Err(Rejected::Foreign));
}

#[test]
fn malformed_records_reject_the_answer() {
    let question = ask("www.example.com", A);
    let records: [(&[u8], u16, u32, &[u8]); 5] = [
        (QNAME, A, 9, &[10, 0, 0]),
        (QNAME, AAAA, 9, &[1; 15]),
        (QNAME, CNAME, 9, &[0xc0, 12, 0]),
        (QNAME, HTTPS, 9, &[0, 1, 0, 0, 4, 0, 3, 1, 2, 3]),
        (&[0xff, 0xff], A, 9, &[10, 0, 0, 1]),
    ];
    for record in records {
        let message = reply(&question, 0, &[record]);
        assert_eq!(
            read(&question, &message),
            Err(Rejected::Malformed),
            "{record:?}"
        );
    }
    let mut counted = reply(&question, 0, &[(QNAME, A, 9, &[10, 0, 0, 1])]);
    counted[6..8].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(read(&question, &counted), Err(Rejected::Malformed));
}

#[test]
fn alias_chains_that_lead_in_circles_or_too_far_teach_nothing() {
    let question = ask("n0.example", A);
    let circle = reply(
        &question,
        0,
        &[
            (QNAME, CNAME, 5, &plain("n1.example")),
            (&plain("n1.example"), CNAME, 5, &plain("n0.example")),
            (QNAME, A, 5, &[10, 0, 0, 1]),
        ],
    );
    assert_eq!(read(&question, &circle), Ok(Answer::Nothing));
    let of_length = |length: usize| {
        let names: Vec<_> = (0..=length)
            .map(|n| plain(&format!("n{n}.example")))
            .collect();
        let mut records: Vec<(&[u8], u16, u32, &[u8])> = names
            .windows(2)
            .map(|w| (&w[0][..], CNAME, 5, &w[1][..]))
            .collect();
        records.push((&names[length], A, 5, &[10, 0, 0, 1]));
        read(&question, &reply(&question, 0, &records))
    };
    assert_eq!(addresses(of_length(16)).len(), 1);
    assert_eq!(of_length(17), Ok(Answer::Nothing));
    assert_eq!(of_length(40), Ok(Answer::Nothing));
}

#[test]
fn hints_of_https_records_count_except_those_of_aliases() {
    let question = ask("www.example.com", HTTPS);
    let mut data = vec![0, 1, 0];
    data.extend([0, 1, 0, 3, 2, b'h', b'2']);
    data.extend([0, 4, 0, 8, 192, 0, 2, 1, 192, 0, 2, 2]);
    data.extend([0, 6, 0, 16]);
    data.extend([2; 16]);
    let message = reply(&question, 0, &[(QNAME, HTTPS, 300, &data)]);
    let found = addresses(read(&question, &message));
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], ("192.0.2.1".into(), 300));
    data[1] = 0;
    let message = reply(&question, 0, &[(QNAME, HTTPS, 300, &data)]);
    assert_eq!(addresses(read(&question, &message)), []);
}

#[test]
fn one_answer_teaches_a_bounded_number_of_addresses() {
    let question = ask("many.example", A);
    let data: Vec<[u8; 4]> = (0..300_u16)
        .map(|n| [10, 0, (n >> 8) as u8, n as u8])
        .collect();
    let records: Vec<(&[u8], u16, u32, &[u8])> =
        data.iter().map(|d| (QNAME, A, 5, &d[..])).collect();
    let Ok(Answer::Addresses { list, more }) = read(&question, &reply(&question, 0, &records))
    else {
        panic!()
    };
    assert_eq!((list.len(), more), (MAX_LEARNED, 300 - MAX_LEARNED));
}

#[test]
fn refusals_repeat_the_question_and_explain_themselves_to_edns() {
    let plain = ask("Www.example.com", A);
    let mut out = Vec::new();
    let query = Query::read(&plain).unwrap();
    refuse(&query, rcode::REFUSED, Explanation::Blocked, &mut out);
    assert_eq!(out[..12], [0x12, 0x34, 0x81, 0x85, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(out[12..], plain[12..]);

    let asked = with_opt(plain, 4096, 0x8000);
    let query = Query::read(&asked).unwrap();
    out.clear();
    refuse(&query, rcode::SERVFAIL, Explanation::NetworkError, &mut out);
    assert_eq!(out[11], 1);
    let tail = &out[out.len() - 17..];
    assert_eq!(
        tail,
        [0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 6, 0, 15, 0, 2, 0, 23]
    );
    assert_eq!(
        read_answer(query.id, &name("www.example.com"), A, &out),
        Ok(Answer::Nothing)
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, start in 0_usize..64) {
        let _ = Query::read(&bytes);
        if let Some((name, end)) = Name::read(&bytes, start) {
            prop_assert!(end <= bytes.len());
            prop_assert!(name.text().is_ascii());
            prop_assert_eq!(Name::read(name.as_bytes(), 0), Some((name.clone(), name.as_bytes().len())));
        }
    }

    #[test]
    fn arbitrary_answers_never_panic_and_stay_bounded(
        tail: Vec<u8>, flags: u16, counts: [u16; 3], kind in prop_oneof![Just(A), Just(AAAA), Just(HTTPS), any::<u16>()],
    ) {
        let question = ask("www.example.com", kind);
        let mut message = reply(&question, flags, &[]);
        for (n, count) in counts.iter().enumerate() {
            message[6 + 2 * n..8 + 2 * n].copy_from_slice(&count.to_be_bytes());
        }
        message.extend(&tail);
        let answer = read_answer(0x1234, &name("www.example.com"), kind, &message);
        if let Ok(Answer::Addresses { list, .. }) = answer {
            prop_assert!(list.len() <= MAX_LEARNED);
        }
    }

    #[test]
    fn addresses_survive_the_way(addresses in proptest::collection::vec(any::<std::net::Ipv4Addr>(), 0..40), ttl in 0_u32..1 << 31) {
        let question = ask("a.b.example", A);
        let data: Vec<[u8; 4]> = addresses.iter().map(std::net::Ipv4Addr::octets).collect();
        let records: Vec<(&[u8], u16, u32, &[u8])> = data.iter().map(|d| (QNAME, A, ttl, &d[..])).collect();
        match read(&question, &reply(&question, 0, &records)) {
            Ok(Answer::Negative) => prop_assert!(addresses.is_empty()),
            Ok(Answer::Addresses { list, more: 0 }) => {
                let got: Vec<_> = list.iter().map(|l| l.address).collect();
                let want: Vec<_> = addresses.iter().map(|a| IpAddr::V4(*a)).collect();
                prop_assert_eq!(got, want);
                prop_assert!(list.iter().all(|l| l.ttl == ttl));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_written_refusal_answers_its_query(id: u16, code in 1_u8..16, edns: bool) {
        let mut asked = ask("x.example", A);
        asked[..2].copy_from_slice(&id.to_be_bytes());
        if edns {
            asked = with_opt(asked, 1232, 0);
        }
        let query = Query::read(&asked).unwrap();
        let mut out = Vec::new();
        refuse(&query, code, Explanation::NoReachableAuthority, &mut out);
        let answer = read_answer(id, &query.name, A, &out);
        prop_assert!(matches!(answer, Ok(Answer::Nothing | Answer::Negative)));
    }
}
