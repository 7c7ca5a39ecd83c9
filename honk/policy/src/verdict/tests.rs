//! Cases 26 to 30 of the acceptance list of health.md.

use std::sync::Arc;

use super::*;
use crate::{
    id::{Secret, Uuid},
    node::{Host, Node, Origin, Protocol, Server},
};

fn node(port: u16, name: &str) -> Arc<Node> {
    let server = Server {
        host: Host::Ip([192, 0, 2, 1].into()),
        port,
        auth: None,
    };
    Arc::new(Node::new(name.to_owned(), Protocol::Socks5(server)))
}

fn nodes(count: u16) -> Vec<Arc<Node>> {
    (1..=count).map(|n| node(n, &format!("n{n}"))).collect()
}

fn rejected(node: &Node) -> Rejection {
    Rejection {
        kind: Kind::Outbound,
        index: 0,
        protocol: "socks5".to_owned(),
        tag: node.name.clone(),
        node: node.into(),
        reason: "it cannot be built".to_owned(),
    }
}

/// A builder that stops at the first bad node which is not left out.
struct Builder {
    nodes: Vec<Arc<Node>>,
    bad: Vec<Arc<Node>>,
    activations: usize,
    checks: usize,
}

impl Builder {
    fn new(nodes: &[Arc<Node>], bad: &[Arc<Node>]) -> Self {
        Self {
            nodes: nodes.to_vec(),
            bad: bad.to_vec(),
            activations: 0,
            checks: 0,
        }
    }

    fn build(&self, off: &[Rejection]) -> Outcome {
        let left = |n: &&Arc<Node>| off.iter().all(|o| o.node != NodeRef::from(&***n));
        let bad = self.bad.iter().find(left);
        bad.map_or(Outcome::Clean, |bad| Outcome::Rejected(rejected(bad)))
    }

    fn run(&mut self, limit: Option<usize>) -> (End, Vec<String>) {
        let mut rounds = Rounds::new(limit);
        let mut step = Step::Activate;
        loop {
            match step {
                Step::Activate => self.activations += 1,
                Step::Check => self.checks += 1,
                Step::End(end) => {
                    let names = rounds.off().iter().map(|r| r.tag.clone());
                    return (end, names.collect());
                }
            }
            let outcome = self.build(rounds.off());
            let known = |node: &NodeRef| self.nodes.iter().any(|n| *node == NodeRef::from(&**n));
            step = rounds.told(outcome, known);
        }
    }
}

// 26
#[test]
fn a_clean_start_makes_no_check_and_one_bad_node_makes_one() {
    let all = nodes(3);
    let mut clean = Builder::new(&all, &[]);
    assert_eq!(clean.run(Some(LIMIT)), (End::Active, vec![]));
    assert_eq!((clean.activations, clean.checks), (1, 0));
    let mut one = Builder::new(&all, &all[1..2]);
    assert_eq!(one.run(Some(LIMIT)), (End::Active, vec!["n2".to_owned()]));
    assert_eq!((one.activations, one.checks), (2, 1));
}

// 26
#[test]
fn a_node_that_is_named_twice_ends_the_rounds() {
    let (mut rounds, bad) = (Rounds::new(Some(LIMIT)), node(1, "n"));
    let again = || Outcome::Rejected(rejected(&bad));
    assert_eq!(rounds.told(again(), |_| true), Step::Check);
    let Step::End(End::Failed(why)) = rounds.told(again(), |_| true) else {
        panic!("it must end");
    };
    assert_eq!(why, "initialize outbound[0] socks5[n]: it cannot be built");
    assert_eq!(rounds.off().len(), 1);
}

// 26
#[test]
fn the_eleventh_bad_node_needs_a_human_unless_one_has_spoken() {
    let all = nodes(12);
    let mut many = Builder::new(&all, &all[..11]);
    let (end, off) = many.run(Some(LIMIT));
    assert_eq!(end, End::Limit(rejected(&all[10])));
    assert_eq!((off.len(), many.activations), (10, 1));
    let (end, off) = many.run(None);
    assert_eq!((end, off.len()), (End::Active, 11));
    let mut ten = Builder::new(&all, &all[..10]);
    assert_eq!(ten.run(Some(LIMIT)).0, End::Active);
}

// 27
#[test]
fn a_node_that_only_the_last_activation_rejects_is_off_and_there_is_no_third() {
    let (mut rounds, all) = (Rounds::new(Some(LIMIT)), nodes(2));
    let out = |n: usize| Outcome::Rejected(rejected(&all[n]));
    assert_eq!(rounds.told(out(0), |_| true), Step::Check);
    assert_eq!(rounds.told(Outcome::Clean, |_| true), Step::Activate);
    let end = rounds.told(out(1), |_| true);
    assert!(matches!(end, Step::End(End::Failed(_))), "{end:?}");
    assert_eq!(rounds.off().len(), 2);
}

// H-113 b
#[test]
fn what_is_not_about_a_node_of_the_configuration_is_an_ordinary_error() {
    let mut rounds = Rounds::new(Some(LIMIT));
    let other = Outcome::Other("no listener".to_owned());
    let failed = Step::End(End::Failed("no listener".to_owned()));
    assert_eq!(rounds.told(other, |_| true), failed);
    let unknown = Outcome::Rejected(rejected(&node(9, "x")));
    let end = Rounds::new(None).told(unknown, |_| false);
    assert!(matches!(end, Step::End(End::Failed(_))), "{end:?}");
}

// 28
#[test]
fn a_line_of_text_is_read_whatever_stands_before_it_and_in_the_name() {
    let text = "FATAL[0000] start: initialize outbound[17] socks5[a]: b]: bad: address]: x";
    let told = parse(text, |tag| tag == "a]: b").unwrap();
    assert_eq!((told.protocol, told.tag), ("socks5", "a]: b"));
    assert_eq!(
        (told.kind, told.reason),
        (Kind::Outbound, "bad: address]: x")
    );
    assert_eq!(parse(text, |tag| tag == "a").unwrap().tag, "a");
    assert_eq!(parse(text, |_| false), None);
    for other in [
        "initialize dns: x",
        "initialize outbound[] s[a]: x",
        "initialize outbound[1] sa: x",
        "",
    ] {
        assert_eq!(parse(other, |_| true), None, "{other}");
    }
    let own = rejected(&node(1, "a]: b"));
    assert_eq!(
        parse(&own.to_string(), |t| t == own.tag).unwrap().tag,
        own.tag
    );
}

// 29
#[test]
fn two_bad_nodes_of_one_name_are_two_nodes() {
    let all = [node(1, "Dup"), node(2, "Dup"), node(3, "fine")];
    let mut both = Builder::new(&all, &all[..2]);
    let (end, off) = both.run(Some(LIMIT));
    assert_eq!((end, off), (End::Active, vec!["Dup".to_owned(); 2]));
}

fn verdict(node: &Node) -> Verdicts {
    let mut verdicts = Verdicts::default();
    verdicts.add(&rejected(node), Body::of(node), 1);
    verdicts
}

fn changed(node: &Node, change: impl FnOnce(&mut Node)) -> Arc<Node> {
    let mut node = node.clone();
    change(&mut node);
    Arc::new(node)
}

// 30
#[test]
fn a_verdict_holds_for_the_same_body_and_no_longer() {
    let bad = node(1, "n");
    let none = |_: &NodeRef| false;
    let mut same = verdict(&bad);
    assert_eq!(same.lift(&[Arc::clone(&bad)], none), []);
    assert_eq!(same.off().into_iter().collect::<Vec<_>>(), [bad.id]);
    let renamed = changed(&bad, |n| n.name = "m".to_owned());
    assert_eq!(verdict(&bad).lift(&[renamed], none).len(), 1);
    let login = changed(&bad, |n| {
        let Protocol::Socks5(server) = &mut n.protocol else {
            return;
        };
        server.auth = Some((Secret::new("u"), Secret::new("p")));
    });
    assert_eq!(login.id, bad.id);
    let mut edited = verdict(&bad);
    assert_eq!(edited.lift(&[login], none).len(), 1);
    assert!(edited.off().is_empty());
    assert_eq!(verdict(&bad).lift(&[node(2, "n")], none).len(), 1, "gone");
}

// 30: a subscription that has not been fetched yet says nothing about its nodes.
#[test]
fn nodes_that_are_still_to_come_keep_their_verdict() {
    let subscription = Uuid::from_u128(7);
    let bad = changed(&node(1, "n"), |n| {
        n.origin = Some(Arc::new(Origin {
            subscription,
            tag: "s".to_owned(),
        }));
    });
    let mut verdicts = verdict(&bad);
    let none: [Arc<Node>; 0] = [];
    let waits = |node: &NodeRef| node.source == Some(subscription);
    assert_eq!(verdicts.lift(&none, waits), []);
    // The same server from elsewhere is another node.
    let own = changed(&bad, |n| n.origin = None);
    assert_eq!(verdicts.lift(&[own], |_| false).len(), 1);
}
