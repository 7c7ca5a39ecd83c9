//! Several files: follows `include`, joins the sections in load order.
//!
//! Order is "the file first, then what it includes, each with its own includes behind it". File
//! access is the caller's: a [`Loader`] answers questions about paths and hands over bytes, so the
//! same rules run against a file system, a map in a test, or one text from standard input.

use std::collections::HashMap;

use crate::{
    ast::{FileId, Item, Lit, Section, Span},
    diag::{Diagnostic, Severity},
    encoding::decode,
    glob,
    limits::{FILE_BYTES, INCLUDE_DEPTH, INCLUDES, TOTAL_BYTES},
    loader::{LoadError, Loader},
    mask,
    parse::file as parse_file,
    source::SourceMap,
};

/// What parsing found.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// All top-level sections in load order. [`parse()`] has carried out and removed `include`
    /// sections; [`parse_text`] keeps them.
    pub sections: Vec<Section>,
    /// The files.
    pub sources: SourceMap,
    /// Syntax and include findings, unsorted.
    pub diagnostics: Vec<Diagnostic>,
    /// Names of top-level sections that could not be read (completely).
    pub broken: Vec<String>,
    /// A whole file could not be read, so any section may be incomplete.
    pub incomplete: bool,
    /// A file has more mistakes than are told; what is behind them was not read.
    pub cut: bool,
}

impl Parsed {
    /// Whether something may be missing from a section because of errors already reported;
    /// complaining about unknown references to it would be noise.
    #[must_use]
    pub fn suspect(&self, section: &str) -> bool {
        self.incomplete || self.broken.iter().any(|name| name == section)
    }
}

/// What to do about a file with another name.
const SUFFIX_HELP: &str = "the name decides how a file is read: rename it to `NAME.dae`, or give \
                           its text with `--stdin`";

/// Parses an entry file and everything it includes.
pub fn parse(entry: &str, loader: &mut dyn Loader) -> Parsed {
    let mut load = Load::new(loader);
    if !entry.ends_with(".dae") {
        let message = format!("`{entry}` does not end in `.dae`");
        let found = Diagnostic::new(Severity::Error, "E305", "suffix", None, message);
        load.parsed.diagnostics.push(found.help(SUFFIX_HELP));
        load.parsed.incomplete = true;
        return load.parsed;
    }
    let found = load.loader.canonical(entry);
    let path = match found {
        Ok(path) => path,
        Err(error) => {
            load.refuse(entry, &error, None);
            return load.parsed;
        }
    };
    load.root = parent(&path).to_owned();
    load.open(Step {
        path: &path,
        name: entry,
        from: None,
        chain: &[],
    });
    load.parsed
}

/// Parses one document that is not a file, as from standard input; `dir` is the (canonical)
/// directory its includes resolve against.
pub fn parse_document(name: &str, bytes: &[u8], dir: &str, loader: &mut dyn Loader) -> Parsed {
    let mut load = Load::new(loader);
    load.root = dir.trim_end_matches('/').to_owned();
    load.take(
        Step {
            path: name,
            name,
            from: None,
            chain: &[],
        },
        bytes,
    );
    load.parsed
}

/// Parses one text and follows no includes; `include` sections stay in the result.
#[must_use]
pub fn parse_text(name: &str, text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let id = parsed.sources.add(name, text, None);
    parsed.sections = parsed.absorb(id);
    parsed
}

/// The same of bytes that may be no text.
#[must_use]
pub fn parse_bytes(name: &str, bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    if let Some(id) = parsed.decode(name, bytes, None) {
        parsed.sections = parsed.absorb(id);
    }
    parsed
}

impl Parsed {
    /// Adds a file to the source map, if it is text.
    fn decode(&mut self, name: &str, bytes: &[u8], from: Option<Span>) -> Option<FileId> {
        let (text, foreign) = decode(bytes);
        let file = self.sources.add(name, text, from);
        let Some(foreign) = foreign else {
            return Some(file);
        };
        // What can be read ends in front of what is wrong.
        let end = self
            .sources
            .file(file)
            .map_or(0, |file| file.text.len() as u32);
        let span = Span {
            file,
            start: end,
            end,
        };
        let found = Diagnostic::error("E101", "parse", span, foreign.message);
        self.diagnostics.push(found.help(foreign.help));
        self.incomplete = true;
        None
    }

    /// Parses a file that is in the source map and returns its sections.
    fn absorb(&mut self, id: FileId) -> Vec<Section> {
        let Some(file) = self.sources.file_mut(id) else {
            return Vec::new();
        };
        let tree = parse_file(id, &file.text);
        file.secrets = Some(mask::secrets(&file.text, &tree.sections, tree.guessed));
        self.diagnostics.extend(tree.diagnostics);
        self.broken.extend(tree.broken);
        self.incomplete |= tree.unreadable | tree.partial;
        self.cut |= tree.cut;
        tree.sections
    }
}

/// One file on the way in.
#[derive(Clone, Copy)]
struct Step<'a> {
    path: &'a str,
    name: &'a str,
    from: Option<Span>,
    /// Canonical paths from the entry file to the includer.
    chain: &'a [String],
}

struct Load<'a> {
    loader: &'a mut dyn Loader,
    /// Canonical directory of the entry file.
    root: String,
    seen: HashMap<String, Option<Span>>,
    bytes: usize,
    parsed: Parsed,
}

impl<'a> Load<'a> {
    fn new(loader: &'a mut dyn Loader) -> Self {
        Self {
            loader,
            root: String::new(),
            seen: HashMap::new(),
            bytes: 0,
            parsed: Parsed::default(),
        }
    }

    fn open(&mut self, step: Step<'_>) {
        match self.loader.read(step.path) {
            Ok(loaded) => {
                for (slug, message) in loaded.warnings {
                    let number = if slug == "perm-open" { "E304" } else { "" };
                    self.parsed.diagnostics.push(Diagnostic::new(
                        Severity::Warning,
                        number,
                        slug,
                        step.from,
                        message,
                    ));
                }
                self.take(step, &loaded.bytes);
            }
            Err(error) => self.refuse(step.path, &error, step.from),
        }
    }

    fn take(&mut self, step: Step<'_>, bytes: &[u8]) {
        self.seen.insert(step.path.to_owned(), step.from);
        self.bytes += bytes.len();
        if self.bytes > TOTAL_BYTES {
            let message = format!("the files are larger than {TOTAL_BYTES} bytes together");
            self.complain("E106", "parse", step.from, message);
            self.parsed.incomplete = true;
            return;
        }
        let Some(id) = self.parsed.decode(step.name, bytes, step.from) else {
            return;
        };
        let sections = self.parsed.absorb(id);
        let mut includes = Vec::new();
        for section in sections {
            if section.name.text == "include" && !section.name.quoted {
                includes.push(section);
            } else {
                self.parsed.sections.push(section);
            }
        }
        let mut chain = step.chain.to_vec();
        chain.push(step.path.to_owned());
        for section in includes {
            self.include(&section, &chain);
        }
    }

    fn include(&mut self, section: &Section, chain: &[String]) {
        for item in &section.items {
            match item {
                Item::Path(path) => self.pattern(path, chain),
                Item::Decl(other) => self.misplaced(other.span),
                Item::Rule(other) => self.misplaced(other.span),
                Item::Sub(other) => self.misplaced(other.span),
                Item::Link(other) => self.misplaced(other.span),
                Item::Stray(other) => self.misplaced(other.span),
            }
        }
    }

    fn misplaced(&mut self, span: Span) {
        self.parsed.diagnostics.push(
            Diagnostic::error(
                "E203",
                "item-misplaced",
                span,
                "only paths may stand in `include`",
            )
            .about("include", ""),
        );
    }

    fn pattern(&mut self, item: &Lit, chain: &[String]) {
        let text = item.text.as_str();
        if !item.quoted && text.ends_with([',', ':']) {
            let kind = if text.ends_with(',') { "`,`" } else { "`:`" };
            self.problem(
                Diagnostic::error(
                    "E301",
                    "include-pattern",
                    item.span,
                    format!("include path `{text}` ends in {kind}"),
                )
                .help("paths are separated by blanks only; quote a path that really ends so"),
                text,
            );
            return;
        }
        if text.is_empty() || !glob::well_formed(text) {
            self.problem(
                Diagnostic::error(
                    "E301",
                    "include-pattern",
                    item.span,
                    format!("include pattern `{text}` is malformed"),
                )
                .help("close `[` with `]`"),
                text,
            );
            return;
        }
        let paths = glob::expand(&self.root, text, self.loader);
        let mut loaded = 0;
        for path in paths {
            if !path.ends_with(".dae") || self.loader.is_dir(&path) {
                continue;
            }
            let canonical = match self.loader.canonical(&path) {
                Ok(canonical) => canonical,
                Err(LoadError::NotFound) => continue,
                Err(error) => {
                    loaded += 1;
                    self.refuse(&path, &error, Some(item.span));
                    continue;
                }
            };
            loaded += 1;
            if !self.admit(item, &canonical, chain) {
                continue;
            }
            self.open(Step {
                path: &canonical,
                name: &canonical,
                from: Some(item.span),
                chain,
            });
        }
        if loaded == 0 {
            self.nothing(item);
        }
    }

    /// Whether a file may be opened; says why not.
    fn admit(&mut self, item: &Lit, path: &str, chain: &[String]) -> bool {
        let inside = path
            .strip_prefix(self.root.as_str())
            .is_some_and(|rest| rest.starts_with('/'));
        if !inside {
            let message = format!("`{path}` lies outside the directory of the entry file");
            let diagnostic = Diagnostic::error("E302", "include-outside", item.span, message)
                .help(format!("move it below `{}`", self.root));
            self.problem(diagnostic, &item.text);
            return false;
        }
        if let Some(first) = self.seen.get(path).copied() {
            let names: Vec<&str> = chain
                .iter()
                .map(String::as_str)
                .chain([path])
                .map(|p| self.short(p))
                .collect();
            let (what, help) = if chain.iter().any(|above| above == path) {
                let help = "a file cannot be part of itself: remove one `include` of the circle";
                ("includes itself", help)
            } else {
                let help = "a file is read once: remove it here, or where it was included first";
                ("is included twice", help)
            };
            let message = format!("`{}` {what}: {}", self.short(path), names.join(" -> "));
            let mut diagnostic =
                Diagnostic::error("E303", "include-cycle", item.span, message).help(help);
            if let Some(first) = first {
                diagnostic = diagnostic.related(first, "first included here");
            }
            self.problem(diagnostic, &item.text);
            return false;
        }
        let limit = if chain.len() > INCLUDE_DEPTH {
            format!("includes are nested deeper than {INCLUDE_DEPTH}")
        } else if self.seen.len() > INCLUDES {
            format!("more than {INCLUDES} files are included")
        } else {
            return true;
        };
        self.problem(
            Diagnostic::error("E106", "parse", item.span, limit),
            &item.text,
        );
        self.parsed.incomplete = true;
        false
    }

    fn short<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(self.root.as_str())
            .map_or(path, |rest| rest.trim_start_matches('/'))
    }

    fn nothing(&mut self, item: &Lit) {
        let text = &item.text;
        let whole = match text.starts_with('/') {
            true => text.clone(),
            false => format!("{}/{text}", self.root),
        };
        let (severity, message) = if glob::is_pattern(text) {
            (Severity::Note, format!("no file matches `{whole}`"))
        } else {
            let why = match self.loader.canonical(&whole) {
                _ if self.loader.is_dir(&whole) => format!("`{whole}` is a directory"),
                Ok(_) if !text.ends_with(".dae") => {
                    format!("`{whole}` is not included: its name does not end in `.dae`")
                }
                _ => format!("there is no file `{whole}` to include"),
            };
            (Severity::Warning, why)
        };
        let help = if message.ends_with("is a directory") {
            "name its files: `directory/*.dae`"
        } else if text.ends_with(".dae") {
            "relative paths start at the directory of the entry file, in included files too"
        } else {
            "only names that end in `.dae` are included"
        };
        let diagnostic =
            Diagnostic::new(severity, "W308", "include-empty", Some(item.span), message).help(help);
        self.problem(diagnostic, text);
    }

    /// A file that was named but not handed over.
    fn refuse(&mut self, path: &str, error: &LoadError, from: Option<Span>) {
        let (number, slug, message) = match error {
            LoadError::Permission(mode) => (
                "E304",
                "perm-open",
                format!("permissions {mode:04o} for '{path}' are too open; use 0640 or 0600"),
            ),
            LoadError::TooLarge(size) => (
                "E106",
                "parse",
                format!("'{path}' has {size} bytes, the limit is {FILE_BYTES}"),
            ),
            LoadError::NotFound | LoadError::NotRegular | LoadError::Io(_) => {
                ("E306", "io", format!("cannot read '{path}': {error}"))
            }
        };
        self.complain(number, slug, from, message);
        self.parsed.incomplete = true;
    }

    fn complain(
        &mut self,
        number: &'static str,
        slug: &'static str,
        span: Option<Span>,
        message: String,
    ) {
        self.parsed.diagnostics.push(Diagnostic::new(
            Severity::Error,
            number,
            slug,
            span,
            message,
        ));
    }

    fn problem(&mut self, diagnostic: Diagnostic, subject: &str) {
        self.parsed
            .diagnostics
            .push(diagnostic.about("include", subject));
    }
}

fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..at])
}
