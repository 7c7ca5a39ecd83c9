//! The syntax tree: spelling and places, no meaning.

/// Number of a source file in its [`SourceMap`](crate::diag::SourceMap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A range of bytes in one source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

/// A name, value or link as text; quotes and the one escape are already resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lit {
    /// The text without quotes.
    pub text: String,
    /// Whether it was quoted.
    pub quoted: bool,
    /// Place, quotes included. The halves of a link item quoted as a whole (`'tag: link'`) lie
    /// inside its quotes.
    pub span: Span,
}

/// `name { items }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name.
    pub name: Lit,
    /// What stands between the braces.
    pub items: Vec<Item>,
    /// Byte offset of `{`.
    pub open_brace: u32,
    /// Byte offset of `}`.
    pub close_brace: u32,
    /// From the name to the closing brace.
    pub span: Span,
}

/// One item of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `key: value [annotation]`
    Decl(Decl),
    /// `f(a) && !g(b) -> outbound(params)`
    Rule(Rule),
    /// A nested section.
    Sub(Section),
    /// An item of `node`, `subscription`, `upstream` or `fixed_domain_ttl`.
    Link(LinkItem),
    /// An item of `include`.
    Path(Lit),
    /// A literal that is no item; lowering reports it as E203.
    Stray(Lit),
}

/// `key: value [annotation]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decl {
    /// The key.
    pub key: Lit,
    /// The value.
    pub value: Value,
    /// Place of the value; an empty one right after the colon when there is none.
    pub value_span: Span,
    /// `[key: value, ...]` behind the value.
    pub annotation: Option<Annotation>,
    /// The whole declaration.
    pub span: Span,
}

/// Value of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing stood on the line after the colon.
    Empty,
    /// `a, b, c`
    Literals(Vec<Lit>),
    /// `f(x) && !g(y)`
    Calls(Vec<Call>),
}

/// `[key: value, ...]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The notes in order.
    pub notes: Vec<Note>,
    /// Brackets included.
    pub span: Span,
}

/// One note of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The key, if there is one.
    pub key: Option<Lit>,
    /// The value.
    pub value: Value,
    /// The whole note.
    pub span: Span,
}

/// `!name(args)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whether `!` stands in front.
    pub not: bool,
    /// Function name.
    pub name: Lit,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Place of a trailing comma (accepted with W212).
    pub trailing_comma: Option<Span>,
    /// From `!` or the name to the closing parenthesis.
    pub span: Span,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Text before the first colon, when the argument was written `key: value`.
    pub key: Option<Lit>,
    /// The value.
    pub value: Lit,
    /// White space stood around the colon, or the value was quoted: the colon separates a key
    /// even if the key is unknown.
    pub spaced: bool,
    /// The whole argument as written.
    pub raw: String,
    /// The whole argument.
    pub span: Span,
}

/// `f(a) && !g(b) -> outbound(params)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The conditions, all of which must hold.
    pub conds: Vec<Call>,
    /// What to do.
    pub out: Out,
    /// The whole rule.
    pub span: Span,
}

/// `name(params)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// Name of the outbound or action.
    pub name: Lit,
    /// Parameters; empty without parentheses.
    pub args: Vec<Arg>,
    /// Whether parentheses were written.
    pub parens: bool,
    /// Place of a trailing comma (accepted with W212).
    pub trailing_comma: Option<Span>,
    /// The whole expression.
    pub span: Span,
}

/// `[tag:] link [-> via] [annotation]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkItem {
    /// The tag.
    pub tag: Option<Lit>,
    /// The link; secret.
    pub link: Lit,
    /// `-> via` or `outbound: via`.
    pub via: Option<Via>,
    /// `[key: value, ...]`
    pub annotation: Option<Annotation>,
    /// The whole item.
    pub span: Span,
}

/// Suffix of a link item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// The name.
    pub name: Lit,
    /// Written as `outbound: name` (deprecated).
    pub legacy: bool,
    /// The suffix with its arrow or keyword.
    pub span: Span,
}

impl Item {
    /// Place of the whole item.
    #[must_use]
    pub const fn span(&self) -> Span {
        match self {
            Self::Decl(item) => item.span,
            Self::Rule(item) => item.span,
            Self::Sub(item) => item.span,
            Self::Link(item) => item.span,
            Self::Path(item) | Self::Stray(item) => item.span,
        }
    }
}
