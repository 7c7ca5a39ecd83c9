//! DNS messages: queries of clients, and answers to the query in the first half.
#![no_main]

use honk_wire::dns::{Explanation, Query, rcode, read_answer, refuse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let half = bytes.len() / 2;
    for (asked, answer) in [bytes.split_at(half), (bytes, bytes)] {
        let Some(query) = Query::read(asked) else {
            continue;
        };
        let _ = read_answer(query.id, &query.name, query.kind, answer);
        // An answer that shares the question reaches the records.
        let mut echoed = asked.to_vec();
        echoed[2] |= 0x80;
        echoed.splice(6..8, answer.iter().copied().chain([0, 9]).take(2));
        echoed.extend(answer);
        let _ = read_answer(query.id, &query.name, query.kind, &echoed);
        let mut refusal = Vec::new();
        refuse(&query, rcode::SERVFAIL, Explanation::NetworkError, &mut refusal);
        assert!(read_answer(query.id, &query.name, query.kind, &refusal).is_ok());
        assert!(query.name.text().is_ascii());
    }
});
