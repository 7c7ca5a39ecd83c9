//! Lists of share links, plain or in base64 as a whole.

use super::{
    BodyError, Info, MAX_ENTRIES, Read,
    entry::{Content, Entry, Refusal},
};
use crate::node::{
    Node,
    link::{self, LinkError, SCHEMES},
    text::{base64_text, display_name},
    url,
};

/// Whether a body without a format looks like a list.
pub(super) fn is_list(text: &str) -> bool {
    text.contains("://") || decoded(text).is_some()
}

/// A body in base64 that holds links.
fn decoded(text: &str) -> Option<String> {
    base64_text(text).filter(|inner| inner.contains("://") || base64_text(inner).is_some())
}

pub(super) fn read(text: &str) -> Result<Read, BodyError> {
    let first = decoded(text);
    // Some providers encode twice; more is no list.
    let second = first
        .as_deref()
        .filter(|inner| !inner.contains("://"))
        .and_then(decoded);
    let text = second.as_deref().or(first.as_deref()).unwrap_or(text);
    let mut read = Read {
        entries: Vec::new(),
        cut: 0,
        info: Info::default(),
    };
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if at < 20 {
            read.info.comment(line);
        }
        let comment = ["#", "//", ";"].iter().any(|mark| line.starts_with(mark));
        let header = line.starts_with("STATUS=") || line.starts_with("REMARKS=");
        if line.is_empty() || comment || header || web_address(line) {
            continue;
        }
        match read.entries.len() < MAX_ENTRIES {
            true => read.entries.push(entry(line)),
            false => read.cut += 1,
        }
    }
    Ok(read)
}

/// `http(s)` lines are web addresses unless they carry a user or a name.
fn web_address(line: &str) -> bool {
    url::scheme(line).is_some_and(|(scheme, rest)| {
        matches!(scheme.as_str(), "http" | "https") && !rest.contains(['@', '#'])
    })
}

fn entry(line: &str) -> Entry {
    let (tag, text) = tagged(line);
    let content = match link::parse(text) {
        Ok(link) => {
            let mut node = Node::from(link);
            if let Some(tag) = tag {
                node.name = tag;
            }
            Content::Node(Box::new(node))
        }
        Err(error) => Content::Refused(refusal(&error)),
    };
    Entry::without("", content)
}

/// `tag:scheme://..`: a name in front of a link.
fn tagged(line: &str) -> (Option<String>, &str) {
    match line.split_once(':') {
        Some((tag, link)) if !link.starts_with("//") => {
            let link = link.trim_start();
            let known = url::scheme(link).is_some_and(|(s, _)| SCHEMES.contains(&s.as_str()));
            match known {
                true => (display_name(tag), link),
                false => (None, line),
            }
        }
        _ => (None, line),
    }
}

fn refusal(error: &LinkError) -> Refusal {
    match error {
        LinkError::Unsupported { scheme } => Refusal::Unsupported(format!("`{scheme}`")),
        LinkError::Feature { scheme, what } => {
            Refusal::Unsupported(format!("`{scheme}` with {what}"))
        }
        LinkError::Hop { why, .. } => match refusal(why) {
            Refusal::Malformed(why) => Refusal::Malformed(format!("chain with {why}")),
            Refusal::Unsupported(what) => Refusal::Unsupported(format!("chain with {what}")),
        },
        LinkError::Malformed { scheme, why } => {
            Refusal::Malformed(format!("malformed `{scheme}`: {why}"))
        }
        // The text in front of `://` may be anything.
        LinkError::Unknown { .. } => Refusal::Malformed("of an unknown scheme".to_owned()),
        LinkError::NoScheme => Refusal::Malformed("without a scheme".to_owned()),
        LinkError::Chain(why) => Refusal::Malformed(format!("chain: {why}")),
    }
}
