//! Files made by hand: what is kept, what is refused, and that no bytes do harm.

use proptest::{collection::vec, prelude::*};

use super::*;

/// A length-delimited field.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = content.len();
    while len > 0x7f {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(content);
    out
}

fn number(field: u8, n: u8) -> Vec<u8> {
    vec![field << 3, n]
}

fn site(kind: u8, value: &str, attrs: &[&str]) -> Vec<u8> {
    let mut message = [number(1, kind), bytes(2, value.as_bytes())].concat();
    for attr in attrs {
        let attr = [bytes(1, attr.as_bytes()), number(2, 1)].concat();
        message.extend(bytes(3, &attr));
    }
    bytes(2, &message)
}

fn cidr(ip: &[u8], len: u8) -> Vec<u8> {
    bytes(2, &[bytes(1, ip), number(2, len)].concat())
}

fn entry(code: &str, items: &[Vec<u8>]) -> Vec<u8> {
    bytes(1, &[bytes(1, code.as_bytes()), items.concat()].concat())
}

fn code(file: &str, code: &str, attr: Option<&str>) -> GeoFile {
    GeoFile {
        file: file.into(),
        code: code.into(),
        attr: attr.map(str::to_owned),
    }
}

fn look(what: What, file: &[u8], wanted: GeoFile) -> Found {
    let mut source = HashMap::from([("f.dat".to_owned(), file.to_vec())]);
    load([(what, wanted)], &mut source, None)
}

fn names(file: &[u8], wanted: &str, attr: Option<&str>) -> Result<Names, Lack> {
    let wanted = code("f.dat", wanted, attr);
    look(What::Sites, file, wanted.clone())
        .sites
        .remove(&wanted)
        .unwrap()
}

fn listed(file: &[u8], wanted: &str, attr: Option<&str>) -> Vec<(Kind, String)> {
    let names = names(file, wanted, attr).unwrap();
    names
        .list
        .iter()
        .map(|(kind, name)| (kind, name.to_owned()))
        .collect()
}

fn networks(file: &[u8], wanted: &str) -> Result<Arc<[Prefix]>, Lack> {
    let wanted = code("f.dat", wanted, None);
    look(What::Networks, file, wanted.clone())
        .networks
        .remove(&wanted)
        .unwrap()
}

fn pair(kind: Kind, name: &str) -> (Kind, String) {
    (kind, name.to_owned())
}

#[test]
fn the_names_of_a_code_with_their_kinds() {
    let items = [
        site(0, "AdS", &[]),
        site(1, "^Ad[0-9]", &[]),
        site(2, "Example.COM", &[]),
        site(3, "www.bücher.example", &[]),
    ];
    let file = [
        entry("OTHER", &[site(2, "no.example", &[])]),
        entry("Geolocation-!CN", &items),
    ]
    .concat();
    let want = [
        pair(Kind::Keyword, "ads"),
        pair(Kind::Regex, "^Ad[0-9]"),
        pair(Kind::Suffix, "example.com"),
        pair(Kind::Full, "www.xn--bcher-kva.example"),
    ];
    assert_eq!(listed(&file, "geolocation-!cn", None), want);
}

#[test]
fn an_attribute_selects_by_its_name_in_any_case() {
    let items = [
        site(2, "a.example", &["cn"]),
        site(2, "b.example", &["x", "ADS"]),
        site(2, "c.example", &[]),
    ];
    let file = entry("g", &items);
    assert_eq!(
        listed(&file, "g", Some("ads")),
        [pair(Kind::Suffix, "b.example")]
    );
    assert_eq!(
        listed(&file, "g", Some("cn")),
        [pair(Kind::Suffix, "a.example")]
    );
    assert_eq!(listed(&file, "g", Some("c")), []);
    assert_eq!(listed(&file, "g", None).len(), 3);
}

#[test]
fn values_that_cannot_match_are_counted() {
    let items = [
        site(2, "a b", &[]),
        site(2, "", &[]),
        site(9, "x.example", &[]),
        site(3, &"x".repeat(254), &[]),
        site(2, ".", &[]),
        site(2, "ok.example", &[]),
    ];
    let names = names(&entry("g", &items), "g", None).unwrap();
    assert_eq!((names.list.len(), names.unusable), (1, 5));
}

#[test]
fn both_entries_of_a_code_count() {
    let file = [
        entry("g", &[site(2, "a.example", &[])]),
        entry("G", &[site(2, "b.example", &[])]),
    ]
    .concat();
    assert_eq!(listed(&file, "g", None).len(), 2);
}

#[test]
fn networks_come_masked_sorted_and_joined() {
    let items = [
        cidr(&[10, 128, 1, 1], 9),
        cidr(&[10, 0, 0, 0], 9),
        cidr(&[1; 16], 8),
    ];
    let list = networks(&entry("X", &items), "x").unwrap();
    let mut v4 = [0; 16];
    v4[10..13].copy_from_slice(&[0xff, 0xff, 10]);
    let mut v6 = [0; 16];
    v6[0] = 1;
    let want = [Prefix { addr: v4, len: 104 }, Prefix { addr: v6, len: 8 }];
    assert_eq!(*list, want);
}

#[test]
fn an_inverse_list_is_refused() {
    let with = |flag| entry("x", &[cidr(&[10, 0, 0, 0], 8), number(3, flag)]);
    assert_eq!(networks(&with(1), "x"), Err(Lack::Inverse));
    assert!(networks(&with(0), "x").is_ok());
}

#[test]
fn networks_that_are_none_are_corrupt() {
    for item in [
        cidr(&[10, 0, 0, 0], 33),
        cidr(&[10, 0], 8),
        cidr(&[0; 16], 129),
        cidr(&[], 0),
    ] {
        assert_eq!(networks(&entry("x", &[item]), "x"), Err(Lack::Corrupt));
    }
}

#[test]
fn a_code_that_is_not_there_comes_with_its_neighbour() {
    let file = entry("GOOGLE", &[]);
    let near = Some("google".to_owned());
    assert_eq!(names(&file, "gogle", None), Err(Lack::Code { near }));
    assert_eq!(names(&file, "cn", None), Err(Lack::Code { near: None }));
    assert_eq!(names(&[], "cn", None), Err(Lack::Code { near: None }));
    let escape = entry("goo\u{1b}le", &[]);
    assert_eq!(
        names(&escape, "google", None),
        Err(Lack::Code { near: None })
    );
}

#[test]
fn a_cut_file_is_corrupt_wherever_it_is_cut() {
    let file = entry(
        "g",
        &[site(2, "a.example", &["x"]), site(3, "b.example", &[])],
    );
    for at in 1..file.len() {
        assert_eq!(names(&file[..at], "g", None), Err(Lack::Corrupt), "{at}");
    }
    assert_eq!(names(b"<!DOCTYPE html>", "g", None), Err(Lack::Corrupt));
}

#[test]
fn damage_elsewhere_leaves_a_code_usable() {
    let broken = bytes(1, &[bytes(1, b"bad"), vec![0x12, 0x7f]].concat());
    let file = [broken, entry("g", &[site(2, "a.example", &[])])].concat();
    assert!(names(&file, "g", None).is_ok());
    assert_eq!(names(&file, "bad", None), Err(Lack::Corrupt));
}

#[test]
fn each_file_is_read_once() {
    struct Counting(Vec<String>);
    impl GeoSource for Counting {
        fn read(&mut self, file: &str, data_dir: Option<&str>) -> Result<Vec<u8>, Unreadable> {
            self.0
                .push(format!("{}/{file}", data_dir.unwrap_or("none")));
            Ok(entry("a", &[]))
        }
    }
    let mut source = Counting(Vec::new());
    let wanted = [
        (What::Sites, code("b.dat", "a", None)),
        (What::Sites, code("b.dat", "x", None)),
        (What::Networks, code("b.dat", "a", None)),
        (What::Networks, code("a.dat", "a", None)),
    ];
    let found = load(wanted, &mut source, Some("/d"));
    assert_eq!(source.0, ["/d/a.dat", "/d/b.dat"]);
    assert_eq!((found.sites.len(), found.networks.len()), (2, 2));
}

#[test]
fn a_file_that_is_not_there_fails_all_its_codes() {
    let found = load(
        [(What::Sites, code("f.dat", "a", None))],
        &mut HashMap::new(),
        None,
    );
    let [Err(lack)] = &found.sites.values().collect::<Vec<_>>()[..] else {
        panic!("{found:?}");
    };
    assert_eq!(lack.to_string(), "is in none of memory");
}

proptest! {
    #[test]
    fn no_bytes_do_harm(raw in vec(any::<u8>(), 0..200)) {
        let _ = names(&raw, "g", Some("a"));
        let _ = networks(&raw, "g");
    }

    /// Damage inside a file that is otherwise right reaches every reader.
    #[test]
    fn no_damage_does_harm(at in any::<prop::sample::Index>(), byte: u8) {
        let items = [site(2, "a.example", &["x"]), cidr(&[10, 0, 0, 0], 8), number(3, 0)];
        let mut file = entry("g", &items);
        let at = at.index(file.len());
        file[at] = byte;
        let _ = names(&file, "g", Some("x"));
        let _ = networks(&file, "g");
    }
}
