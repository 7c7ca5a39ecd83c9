//! Random documents: the same content in any layout.
//!
//! `content` decides what is said, `layout` where blanks, line breaks and comments stand; two
//! documents with the same content must read alike.

/// A small generator, because the two streams must not disturb each other.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) const fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(words.len())]
    }
}

/// How blanks are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One blank where one may stand, newlines only where they must.
    Tight,
    /// Blanks, newlines and comments wherever they may stand.
    Wild(u64),
    /// As tight, and everything quotable quoted.
    Quoted,
}

pub(crate) struct Doc {
    content: Dice,
    layout: Dice,
    style: Layout,
    out: String,
}

const NAMES: &[&str] = &[
    "a",
    "log_level",
    "hk",
    "日本",
    "x-1",
    "eth0.5",
    "a+b",
    "p|q",
    "n#1",
    "e!",
];
const VALUES: &[&str] = &[
    "info",
    "12346",
    "10.0.0.0/8",
    "::1",
    "fe80::1",
    "aa:bb",
    "h:53",
    "-500ms",
    "*.x",
    "a/*b",
    "日",
];
const QUOTED: &[&str] = &[
    "'it\\'s'",
    "\"x y\"",
    "'# no, {comment}'",
    "'a,b'",
    "\"->\"",
    "''",
    "'\\d+'",
    "'：'",
];
const FUNCS: &[&str] = &["domain", "dip", "name", "f_1"];
const LINKS: &[&str] = &[
    "socks5://192.0.2.1:1080#home",
    "'ss://x@h:1'",
    "192.0.2.55",
    "https://x/y?a=1&b=2",
    "10",
];

impl Doc {
    pub(crate) fn write(content: u64, style: Layout) -> String {
        let seed = match style {
            Layout::Wild(seed) => seed,
            Layout::Tight | Layout::Quoted => 0,
        };
        let mut doc = Self {
            content: Dice::new(content),
            layout: Dice::new(seed),
            style,
            out: String::new(),
        };
        doc.gap();
        for _ in 0..doc.content.roll(4) {
            doc.top();
            doc.gap();
        }
        doc.out
    }

    fn top(&mut self) {
        match self.content.roll(6) {
            0 => self.body("include", |doc| {
                let path = doc.content.pick(&["config.d/*.dae", "'b c.dae'", "x.dae"]);
                doc.put(path);
            }),
            1 => self.body("node", Self::link),
            2 => self.body("subscription", Self::link),
            3 => self.body("dns", |doc| match doc.content.roll(3) {
                0 => doc.body("upstream", Self::link),
                1 => doc.body("fixed_domain_ttl", Self::link),
                _ => doc.item(1),
            }),
            _ => self.section(0),
        }
    }

    fn section(&mut self, depth: usize) {
        self.name();
        self.gap();
        self.put("{");
        self.gap();
        for _ in 0..self.content.roll(4) {
            self.item(depth);
            self.must_gap();
        }
        self.put("}");
    }

    fn body(&mut self, name: &str, item: impl Fn(&mut Self)) {
        self.put(name);
        self.gap();
        self.put("{");
        self.gap();
        for _ in 0..self.content.roll(4) {
            item(self);
            self.must_gap();
        }
        self.put("}");
    }

    fn item(&mut self, depth: usize) {
        match self.content.roll(7) {
            0 if depth < 3 => self.section(depth + 1),
            1 | 2 => self.rule(),
            3 => self.empty(),
            _ => self.setting(),
        }
    }

    fn rule(&mut self) {
        self.calls();
        self.gap();
        self.put("->");
        self.gap();
        self.name();
        if self.content.roll(3) == 0 {
            self.hgap();
            self.parens();
        }
    }

    fn calls(&mut self) {
        for i in 0..=self.content.roll(3) {
            if i > 0 {
                self.gap();
                self.put("&&");
                self.gap();
            }
            if self.content.roll(3) == 0 {
                self.put("!");
                self.hgap();
            }
            let func = self.content.pick(FUNCS);
            self.put(func);
            self.hgap();
            self.parens();
        }
    }

    fn parens(&mut self) {
        self.put("(");
        self.gap();
        let count = self.content.roll(4);
        for i in 0..count {
            if i > 0 {
                self.put(",");
                self.gap();
            }
            // A key needs a blank in front of its value to be one whatever its name.
            if self.content.roll(3) == 0 {
                self.put("key");
                self.hgap();
                self.put(":");
                self.out.push(' ');
                self.gap();
            }
            self.value();
            self.gap();
        }
        self.put(")");
    }

    fn setting(&mut self) {
        self.name();
        self.hgap();
        self.put(":");
        self.hgap();
        self.out.push(' ');
        if self.content.roll(3) == 0 {
            self.calls();
        } else {
            for i in 0..=self.content.roll(3) {
                if i > 0 {
                    self.hgap();
                    self.put(",");
                    self.gap();
                }
                self.value();
            }
        }
        self.annotation();
    }

    fn empty(&mut self) {
        self.name();
        self.hgap();
        self.put(":");
        self.annotation();
        self.newline();
    }

    fn annotation(&mut self) {
        if self.content.roll(4) > 0 {
            return;
        }
        self.hgap();
        self.out.push(' ');
        self.put("[");
        self.gap();
        self.put("key");
        self.hgap();
        self.put(":");
        self.gap();
        self.out.push(' ');
        self.value();
        self.gap();
        self.put("]");
    }

    fn link(&mut self) {
        let link = self.content.pick(LINKS);
        if self.content.roll(2) == 0 {
            let tag = self.content.pick(NAMES);
            self.put(tag);
            self.hgap();
            self.put(":");
            self.out.push(' ');
        }
        self.put(link);
        if self.content.roll(3) == 0 {
            self.out.push(' ');
            self.hgap();
            self.put("->");
            self.hgap();
            let name = self.content.pick(NAMES);
            self.put(name);
        }
        if self.content.roll(3) == 0 {
            self.out.push(' ');
            self.annotation();
        }
        self.newline();
    }

    fn name(&mut self) {
        let name = self.content.pick(NAMES);
        self.word(name);
    }

    fn value(&mut self) {
        let words = if self.content.roll(3) == 0 {
            QUOTED
        } else {
            VALUES
        };
        let value = self.content.pick(words);
        self.word(value);
    }

    fn word(&mut self, word: &str) {
        if self.style == Layout::Quoted && !word.starts_with(['\'', '"']) {
            self.out.push('\'');
            self.out.push_str(word);
            self.out.push('\'');
        } else {
            self.out.push_str(word);
        }
    }

    fn put(&mut self, token: &str) {
        self.out.push_str(token);
    }

    /// Blanks on this line; may be none.
    fn hgap(&mut self) {
        if let Layout::Wild(_) = self.style {
            let blank = ["", "", " ", "\t", " /* x: '{ */ "][self.layout.roll(5)];
            self.out.push_str(blank);
        }
    }

    /// Blanks that may hold newlines; may be none, but a blank at least after a word.
    fn gap(&mut self) {
        if let Layout::Wild(_) = self.style {
            let blank = [
                " ",
                "  ",
                "\n",
                "\n\n\n",
                "\t",
                " # it's {\n",
                " /* a\n b */ ",
                "\n# c\n",
            ][self.layout.roll(8)];
            self.out.push_str(blank);
        } else {
            self.out.push(' ');
        }
    }

    fn must_gap(&mut self) {
        self.out.push(' ');
        self.gap();
    }

    /// A line end that carries meaning.
    fn newline(&mut self) {
        self.out.push('\n');
    }
}
