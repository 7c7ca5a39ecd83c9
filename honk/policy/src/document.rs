//! A JSON or YAML document as a tree of text.
//!
//! Programs write the same scalar as text, number or boolean, and YAML turns an unquoted password
//! of digits into a number; here every scalar is its text. Aliases share, they do not copy, so an
//! alias bomb stays as small as it is written. The number of values and the depth are bounded.

use std::{cell::Cell, collections::HashMap, fmt, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Values of one document; a list of 8192 nodes with 30 settings each has half of that.
const MAX_VALUES: usize = 500_000;
/// Nesting of one document; no format needs more than eight.
const MAX_DEPTH: usize = 64;

/// A value. It has no `Debug` outside of tests: it may hold credentials.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Tree {
    Null,
    Text(String),
    List(Vec<Rc<Self>>),
    Map(Vec<(String, Rc<Self>)>),
}

/// Why a document cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Syntax,
    TooLarge,
    TooDeep,
}

impl Tree {
    /// A value of a mapping; the last one when the key is repeated.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs
                .iter()
                .rfind(|(k, v)| k == key && **v != Self::Null)
                .map(|(_, v)| &**v),
            _ => None,
        }
    }

    /// The value at a path of keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |tree, key| tree.get(key))
    }

    /// A scalar of a mapping.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Self::as_text)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; a single scalar counts as a list of one.
    pub(crate) fn items(&self) -> &[Rc<Self>] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// Texts of a list, or of a scalar that stands for one.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::List(items) => items.iter().filter_map(|item| item.as_text()).collect(),
            Self::Null | Self::Map(_) => Vec::new(),
        }
    }

    /// Reads JSON.
    pub(crate) fn json(text: &str) -> Result<Self, Unreadable> {
        let budget = Budget::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let read = Seed {
            budget: &budget,
            depth: 0,
        }
        .deserialize(&mut json)
        .and_then(|tree| json.end().map(|()| tree));
        read.map_err(|_| budget.fault.get().unwrap_or(Unreadable::Syntax))
    }

    /// Reads the first document of YAML.
    pub(crate) fn yaml(text: &str) -> Result<Self, Unreadable> {
        Composer::default().read(text)
    }
}

struct Budget {
    left: Cell<usize>,
    fault: Cell<Option<Unreadable>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: Cell::new(MAX_VALUES),
            fault: Cell::new(None),
        }
    }
}

impl Budget {
    fn spend(&self, depth: usize) -> Result<(), Unreadable> {
        let fault = match (self.left.get().checked_sub(1), depth > MAX_DEPTH) {
            (_, true) => Unreadable::TooDeep,
            (None, _) => Unreadable::TooLarge,
            (Some(left), _) => {
                self.left.set(left);
                return Ok(());
            }
        };
        self.fault.set(Some(fault));
        Err(fault)
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    budget: &'a Budget,
    depth: usize,
}

impl Seed<'_> {
    fn inner(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Tree, D::Error> {
        self.budget
            .spend(self.depth)
            .map_err(|_| D::Error::custom("limit"))?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.inner())? {
            items.push(Rc::new(item));
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            pairs.push((key, Rc::new(map.next_value_seed(self.inner())?)));
        }
        Ok(Tree::Map(pairs))
    }
}

/// A list or mapping that is not complete yet.
struct Open {
    anchor: usize,
    /// Levels below it so far, those behind aliases included.
    height: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<Tree>>),
    Map(Pairs),
}

/// A mapping under way.
#[derive(Default)]
struct Pairs {
    /// Written in the mapping itself, which wins.
    own: Vec<(String, Rc<Tree>)>,
    /// Merged into it, the weakest last.
    merged: Vec<(String, Rc<Tree>)>,
    /// A key whose value is still to come.
    key: Option<String>,
}

impl Pairs {
    fn finish(self) -> Vec<(String, Rc<Tree>)> {
        let mut all = self.merged;
        all.reverse();
        all.extend(self.own);
        all
    }
}

/// Builds a tree from the events of the parser, without recursion.
#[derive(Default)]
struct Composer {
    open: Vec<Open>,
    anchors: HashMap<usize, (Rc<Tree>, usize)>,
    budget: Budget,
}

impl Composer {
    fn read(mut self, text: &str) -> Result<Tree, Unreadable> {
        for event in Parser::new_from_str(text) {
            let (event, _) = event.map_err(|_| Unreadable::Syntax)?;
            let root = match event {
                Event::Scalar(value, style, anchor, _) => {
                    let null = style == ScalarStyle::Plain
                        && matches!(&*value, "" | "~" | "null" | "Null" | "NULL");
                    let tree = match null {
                        true => Tree::Null,
                        false => Tree::Text(value.into_owned()),
                    };
                    self.complete(anchor, Rc::new(tree), 0)?
                }
                Event::Alias(anchor) => {
                    let known = self.anchors.get(&anchor).cloned();
                    let (tree, height) = known.unwrap_or_else(|| (Rc::new(Tree::Null), 0));
                    self.complete(0, tree, height)?
                }
                Event::SequenceStart(anchor, _) => self.start(anchor, Content::List(Vec::new()))?,
                Event::MappingStart(anchor, _) => {
                    self.start(anchor, Content::Map(Pairs::default()))?
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let open = self.open.pop().ok_or(Unreadable::Syntax)?;
                    let tree = match open.content {
                        Content::List(items) => Tree::List(items),
                        Content::Map(pairs) => Tree::Map(pairs.finish()),
                    };
                    self.complete(open.anchor, Rc::new(tree), open.height)?
                }
                Event::DocumentEnd | Event::StreamEnd => return Ok(Tree::Null),
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => None,
            };
            if let Some(root) = root {
                // An anchor may name the root itself.
                drop(self.anchors);
                return Ok(Rc::try_unwrap(root).unwrap_or(Tree::Null));
            }
        }
        Err(Unreadable::Syntax)
    }

    fn start(&mut self, anchor: usize, content: Content) -> Result<Option<Rc<Tree>>, Unreadable> {
        self.open.push(Open {
            anchor,
            height: 1,
            content,
        });
        self.budget.spend(self.open.len())?;
        Ok(None)
    }

    /// Puts a finished value where it belongs; the root is returned.
    fn complete(
        &mut self,
        anchor: usize,
        tree: Rc<Tree>,
        height: usize,
    ) -> Result<Option<Rc<Tree>>, Unreadable> {
        // Aliases can nest deeper than the text does.
        self.budget.spend(height)?;
        if anchor > 0 {
            self.anchors.insert(anchor, (Rc::clone(&tree), height));
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(tree));
        };
        open.height = open.height.max(height + 1);
        match &mut open.content {
            Content::List(items) => items.push(tree),
            Content::Map(pairs) => match pairs.key.take() {
                None => pairs.key = Some(tree.as_text().unwrap_or_default().to_owned()),
                Some(key) if key == "<<" => merge(&mut pairs.merged, &tree, &self.budget)?,
                Some(key) => pairs.own.push((key, tree)),
            },
        }
        Ok(None)
    }
}

/// `<<: *other`: of several, the first one wins. They are kept from strong to weak, and so are
/// the pairs of each, of which the last one counts.
fn merge(
    merged: &mut Vec<(String, Rc<Tree>)>,
    tree: &Tree,
    budget: &Budget,
) -> Result<(), Unreadable> {
    let mut take = |tree: &Tree| {
        if let Tree::Map(more) = tree {
            for (key, value) in more.iter().rev() {
                budget.spend(0)?;
                merged.push((key.clone(), Rc::clone(value)));
            }
        }
        Ok(())
    };
    match tree {
        Tree::List(items) => items.iter().try_for_each(|item| take(item)),
        one => take(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_text_as_written() {
        let yaml = "{a: 0123, b: 1e5, c: yes, d: null, e: 'null', f: , g: \"x\\ty\", h: 1.50}";
        let tree = Tree::yaml(yaml).unwrap();
        let text = |key| tree.text(key);
        assert_eq!(text("a"), Some("0123"));
        assert_eq!(text("b"), Some("1e5"));
        assert_eq!(text("c"), Some("yes"));
        assert_eq!(
            (text("d"), text("e"), text("f")),
            (None, Some("null"), None)
        );
        assert_eq!((text("g"), text("h")), (Some("x\ty"), Some("1.50")));
        let tree =
            Tree::json(r#"{"a": 443, "b": true, "c": null, "a": "last", "d": -1.5}"#).unwrap();
        assert_eq!(tree.text("a"), Some("last"));
        assert_eq!((tree.text("b"), tree.get("c")), (Some("true"), None));
        assert_eq!(tree.text("d"), Some("-1.5"));
    }

    #[test]
    fn merges_give_way_to_what_is_written() {
        let yaml = "
one: &one {a: 1, b: 1}
two: &two {b: 2, c: 2}
both: {<<: [*one, *two], c: 3}
late: {a: 0, <<: *one}
";
        let tree = Tree::yaml(yaml).unwrap();
        let text = |path: [&str; 2]| tree.at(&path).and_then(Tree::as_text);
        assert_eq!(text(["both", "a"]), Some("1"));
        assert_eq!(text(["both", "b"]), Some("1"));
        assert_eq!(text(["both", "c"]), Some("3"));
        assert_eq!(text(["late", "a"]), Some("0"));
        assert_eq!(text(["late", "b"]), Some("1"));
    }

    #[test]
    fn only_the_first_document_is_read() {
        let tree = Tree::yaml("a: 1\n---\na: 2\n").unwrap();
        assert_eq!(tree.text("a"), Some("1"));
        assert_eq!(Tree::yaml(""), Ok(Tree::Null));
        assert_eq!(Tree::json("{} x"), Err(Unreadable::Syntax));
    }
}
