//! What each file of a configuration contributed, for those who look for a line.

use honk_grammar::{
    Parsed,
    ast::{FileId, Item, Section},
};

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Path.
    pub(crate) file: String,
    /// File and line of the `include` that named it.
    pub(crate) included_from: Option<(String, u32)>,
    /// Sections in order of appearance, with the number of their items.
    pub(crate) sections: Vec<(String, usize)>,
}

/// The files in load order.
pub(crate) fn shares(parsed: &Parsed) -> Vec<Share> {
    let sources = &parsed.sources;
    (0..)
        .zip(sources.files())
        .map(|(id, file)| {
            let from = file.included_from;
            let from = from.and_then(|span| {
                let name = sources.file(span.file)?.name.clone();
                Some((name, sources.line(span)?))
            });
            let of = parsed.sections.iter().filter(|s| s.span.file == FileId(id));
            Share {
                file: file.name.clone(),
                included_from: from,
                sections: counted(of),
            }
        })
        .collect()
}

fn counted<'a>(sections: impl Iterator<Item = &'a Section>) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for section in sections {
        let name = &section.name.text;
        let items = items(section);
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += items,
            None => counts.push((name.clone(), items)),
        }
    }
    counts
}

/// Settings, links, rules and groups; of other nested sections what is in them.
fn items(section: &Section) -> usize {
    let of = |item: &Item| match item {
        Item::Sub(sub) if section.name.text != "group" => items(sub),
        _ => 1,
    };
    section.items.iter().map(of).sum()
}
