//! The canonical form, by example.

use honk_grammar::format;

#[test]
fn one_item_per_line_four_blanks_per_level_comments_kept() {
    let text = "\u{FEFF}# head\r\n\r\ninclude{a.dae 'b c.dae'}/* x */global{ # g\r\n log_level:info # why\r\n\r\n\r\n# own\r\nlan_interface:\r\nempty:[a:b] }\r\nnode{'q:ss://x' b:ss://y->z[k:v]}\r\nrouting{domain(geosite:cn,suffix : x,)&&!dip(2001:db8::/32,\r\n::1)->direct(mark:1,must) f(a, # inner\r\n b) -> x fallback:proxy}\r\nempty {\r\n}\r\nnote { # only\r\n}\r\n# tail";
    let expected = "\
# head

include {
    a.dae
    'b c.dae'
}

/* x */
global { # g
    log_level: info # why

    # own
    lan_interface:
    empty: [a: b]
}

node {
    q: 'ss://x'
    b: 'ss://y' -> z [k: v]
}

routing {
    domain(geosite: cn, suffix: x) && !dip('2001:db8::/32', '::1') -> direct(mark: 1, must)
    f(a, # inner
 b) -> x
    fallback: proxy
}

empty {}

note { # only
}

# tail
";
    let formatted = format(text).expect("text parses");
    assert_eq!(formatted, expected);
    assert_eq!(format(&formatted).expect("parses"), expected);
}

#[test]
fn long_rules_and_lists_are_broken_where_a_newline_may_stand() {
    let list: Vec<String> = (0..40).map(|i| format!("10.0.{i}.0/24")).collect();
    let text = format!(
        "routing {{ dip({}) -> direct }} global {{ a: {} }}",
        list.join(","),
        list.join(",")
    );
    let formatted = format(&text).expect("text parses");
    assert!(
        formatted.lines().all(|line| line.chars().count() <= 100),
        "{formatted}"
    );
    assert!(formatted.lines().count() > 10);
    assert_eq!(format(&formatted).expect("parses"), formatted);
}

#[test]
fn an_empty_file_stays_empty_and_a_broken_one_is_refused() {
    assert_eq!(format(" \n").expect("parses"), "");
    assert_eq!(format("# x").expect("parses"), "# x\n");
    assert!(format("global {").is_err());
}

#[test]
fn a_comment_that_only_the_line_break_hides_is_no_word() {
    // With the comment in front of it gone or moved, `/*` would open one that is never closed.
    for text in [
        "node { a: b [k:/*c*\n*/] }",
        "node { a: b [:/*->*/k] }",
        "node { a: b [/*: */:] }",
        "node { a: b [\n]/*k:] }",
        "node { a: b [\n][/*:] }",
        "node { a: b [# :/*] }",
        "node { a: b [# ,:/*] }",
        "node { a: b [# ::[/*] }",
        "group { x: :# :/*}",
        "group { x: ::# ::/*}",
    ] {
        if let Ok(once) = format(text) {
            assert_eq!(format(&once).ok().as_ref(), Some(&once), "{text}");
        }
    }
    for (text, kept) in [
        ("node { a: b [k:/*c*/v] }", "    a: b [k:/*c*/v]\n"),
        ("node { a: [::1]:53 b: c:/x }", "    a: '[::1]:53'\n"),
        ("node { a: http://h:/*x }", "    a: 'http://h:/*x'\n"),
        ("node { a: 'x:/*y' }", "    a: 'x:/*y'\n"),
        ("routing { f(a:/b/*.c) -> d }", "    f('a:/b/*.c') -> d\n"),
    ] {
        let once = format(text).expect(text);
        assert!(once.contains(kept), "{text}: {once}");
    }
}

#[test]
fn words_behind_an_item_stay_on_its_line() {
    let text = "group {\n    g {\n        filter: name(a) b c\n        d\n        policy: select\n    }\n}\n";
    assert_eq!(format(text).expect("parses"), text);
    let close = "group{g{filter:name(a)  b policy:select}}";
    let open = "group {\n    g {\n        filter: name(a) b\n        policy: select\n    }\n}\n";
    assert_eq!(format(close).expect("parses"), open);
}

#[test]
fn every_spelling_of_a_meaning_becomes_the_same() {
    let one = "\
global {
    log_level: info
    tcp_check_url: 'http://a.example', '2001:db8::1'
}

subscription {
    s: 'https://a.example/x?y#z' [update_interval: 6h]
    'https://b.example/'
}

group {
    'a b' {
        filter: name(keyword: hk) && !subtag(regex: '^x')
        policy: select
    }
}

routing {
    dip(geoip: private, 10.0.0.0/8, 'fe80::/10') && mac('aa:bb:cc:dd:ee:ff') -> direct
    domain(geosite: geolocation-!cn, suffix: a.example) -> 'a b'(mark: 0x800, must)
    fallback: direct
}
";
    for other in [
        one.to_owned(),
        one.replace('\'', "\""),
        one.replace("'fe80::/10'", "fe80::/10")
            .replace("'aa:bb:cc:dd:ee:ff'", "aa:bb:cc:dd:ee:ff")
            .replace("'2001:db8::1'", "2001:db8::1"),
        one.replace("geoip: ", "geoip:")
            .replace("keyword: ", "keyword:")
            .replace("geosite: ", "geosite:   ")
            .replace("mark: ", "mark:"),
        one.replace("s: 'https", "'s: https")
            .replace("'https://b.example/'", "https://b.example/"),
        one.replace("info", "'info'")
            .replace("global", "'global'")
            .replace("log_level", "\"log_level\"")
            .replace("-> direct", "-> 'direct'")
            .replace("10.0.0.0/8", "'10.0.0.0/8'"),
    ] {
        assert_eq!(format(&other).expect("parses"), one, "{other}");
    }
    // In quotes these words are no sections.
    let quoted = "'node' {}\n\ndns {\n    'upstream' {}\n}\n";
    assert_eq!(format(quoted).expect("parses"), quoted);
}
