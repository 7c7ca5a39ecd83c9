//! The tree without what is spelling only: quotes, and blanks behind a colon.

use honk_grammar::ast::{Annotation, Arg, Call, Item, Lit, Section, Value};

/// A dump that is the same for all spellings of the same meaning.
pub(crate) fn meaning(sections: &[Section]) -> String {
    let plain: Vec<Section> = sections.iter().cloned().map(section).collect();
    super::tree(&plain).replace("+comma", "")
}

fn section(mut part: Section) -> Section {
    const BARE: [&str; 6] = [
        "include",
        "node",
        "subscription",
        "dns",
        "upstream",
        "fixed_domain_ttl",
    ];
    // Of these sections the quotes are not spelling.
    part.name.quoted |= !BARE.contains(&part.name.text.as_str());
    part.items.iter_mut().for_each(item);
    part
}

fn item(item: &mut Item) {
    match item {
        Item::Decl(decl) => {
            lit(&mut decl.key);
            value(&mut decl.value);
            annotation(decl.annotation.as_mut());
        }
        Item::Rule(rule) => {
            calls(&mut rule.conds);
            lit(&mut rule.out.name);
            args(&mut rule.out.args);
        }
        Item::Sub(sub) => *sub = section(sub.clone()),
        Item::Link(link) => {
            link.tag.iter_mut().for_each(lit);
            lit(&mut link.link);
            link.via.iter_mut().for_each(|via| lit(&mut via.name));
            annotation(link.annotation.as_mut());
        }
        Item::Path(word) | Item::Stray(word) => lit(word),
    }
}

fn lit(lit: &mut Lit) {
    lit.quoted = true;
}

fn value(value: &mut Value) {
    match value {
        Value::Empty => {}
        Value::Literals(list) => list.iter_mut().for_each(lit),
        Value::Calls(list) => calls(list),
    }
}

fn annotation(annotation: Option<&mut Annotation>) {
    for note in annotation.into_iter().flat_map(|a| &mut a.notes) {
        note.key.iter_mut().for_each(lit);
        value(&mut note.value);
    }
}

fn calls(list: &mut [Call]) {
    list.iter_mut().for_each(|call| args(&mut call.args));
}

fn args(list: &mut [Arg]) {
    for arg in list {
        let (key, text) = arg.parts();
        let (key, text) = (key.cloned(), text.to_owned());
        arg.spaced = key.is_some();
        arg.value.text = text;
        arg.key = key;
        arg.key.iter_mut().for_each(lit);
        lit(&mut arg.value);
    }
}
