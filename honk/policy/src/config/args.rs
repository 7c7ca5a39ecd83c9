//! Arguments of one function call in a rule, each with its own place.
//!
//! Every argument that is not understood is an error; nothing is skipped.

use honk_grammar::{
    ast::{Arg, Call, Span},
    diag::Diagnostic,
};

use super::{
    GeoFile,
    geo::Named,
    hints,
    matcher::{PRIVATE, Wrong, domain, geo_code, geo_file, network, prefix},
    reach::fits_all,
    report::{Report, call_name, with_help},
    value::{BadValue, Letters, remedy, shortened},
};
use crate::{
    geo::What,
    routing::rule::{DomainTest, Prefix},
};

/// Keys of `domain` and `qname`.
pub(super) const DOMAIN_KEYS: &[&str] = &[
    "suffix", "domain", "full", "keyword", "contains", "regex", "geosite", "ext",
];

/// Reads the arguments of one call.
pub(super) struct Arguments<'r, 's, 'c> {
    pub(super) report: &'r mut Report<'s>,
    /// `routing` or `dns`.
    pub(super) section: &'static str,
    pub(super) call: &'c Call,
    pub(super) failed: bool,
}

impl Arguments<'_, '_, '_> {
    /// Reads every argument; `keys` are the keys the function takes.
    pub(super) fn each<T, E: Into<Wrong>>(
        &mut self,
        keys: &[&str],
        read: impl Fn(Option<&str>, &str) -> Result<T, E>,
    ) -> Vec<T> {
        let mut values = Vec::with_capacity(self.call.args.len());
        for arg in &self.call.args {
            let Some((key, text)) = self.keyed(arg, keys) else {
                continue;
            };
            match read(key, text) {
                Ok(value) => values.push(value),
                Err(wrong) => self.bad(key, text, arg.span, wrong.into()),
            }
        }
        values
    }

    /// Key and text of an argument; E602 when the function does not take the key.
    pub(super) fn keyed<'a>(
        &mut self,
        arg: &'a Arg,
        keys: &[&str],
    ) -> Option<(Option<&'a str>, &'a str)> {
        let (key, text) = arg.parts();
        let Some(key) = key else {
            return Some((None, text));
        };
        if keys.contains(&key.text.as_str()) {
            return Some((Some(&key.text), text));
        }
        let name = key.text.as_str();
        let message = format!("`{}` takes no `{}:`", call_name(self.call), shortened(name));
        let finding = Diagnostic::error("E602", "argument-key", key.span, message);
        let help = match name {
            _ if DOMAIN_KEYS.contains(&name) => Some(format!("`{name}:` belongs to `domain`")),
            "geoip" => Some("`geoip:` belongs to `dip` and `sip`".to_owned()),
            _ => self.report.did_you_mean(name, keys.iter().copied()),
        };
        self.report
            .push(with_help(finding, help).about(self.section, name));
        self.failed = true;
        None
    }

    pub(super) fn bad(&mut self, key: Option<&str>, text: &str, span: Span, wrong: Wrong) {
        let hint = match key {
            None | Some("suffix" | "domain") => hints::argument(&self.call.name.text, text),
            Some("full") => hints::full(text),
            Some(_) => None,
        };
        let (number, slug) = match key {
            Some("regex") => ("E409", "type"),
            _ => ("E604", "argument"),
        };
        let message = format!("`{}`: {}", call_name(self.call), wrong.why);
        let finding = Diagnostic::error(number, slug, span, message);
        let help = wrong
            .near
            .and_then(|near| self.report.did_you_mean(&near.word, (near.among)()));
        let finding = with_help(finding, help.or(hint));
        self.report
            .push(finding.about(self.section, &self.call.name.text));
        self.failed = true;
    }

    fn bad_pattern(&mut self, text: &str, span: Span, bad: &BadValue) {
        let message = format!("`{}`: {}", call_name(self.call), bad.text);
        let finding = Diagnostic::error("E409", "type", span, message);
        let finding = with_help(finding, remedy(text, &self.call.name.text));
        self.report
            .push(finding.about(self.section, &self.call.name.text));
        self.failed = true;
    }

    fn fits_all(&mut self, span: Span) {
        let name = call_name(self.call);
        let message = format!("`{name}`: this pattern fits every name");
        let finding = Diagnostic::warning("", "pattern-wide", span, message);
        let finding = finding.help(match self.section {
            "routing" => "leave the condition out to take flows without a known name too",
            _ => "leave the condition out",
        });
        self.report
            .push(finding.about(self.section, &self.call.name.text));
    }

    /// Values of `domain` and `qname`.
    pub(super) fn names(&mut self) -> Vec<DomainTest> {
        let mut tests = Vec::with_capacity(self.call.args.len());
        for arg in &self.call.args {
            let Some((key, text)) = self.keyed(arg, DOMAIN_KEYS) else {
                continue;
            };
            if key == Some("regex")
                && let Err(bad) = self.report.pattern(text, Letters::Ascii)
            {
                self.bad_pattern(text, arg.span, &bad);
                continue;
            }
            if key == Some("regex") && fits_all(text) {
                self.fits_all(arg.span);
            }
            match domain(key, text) {
                Ok(test) => {
                    if let DomainTest::Geosite {
                        file, code, attr, ..
                    } = &test
                    {
                        let code = GeoFile {
                            file: file.clone(),
                            code: code.clone(),
                            attr: attr.clone(),
                        };
                        self.geodata(What::Sites, &code, arg.span);
                    }
                    tests.push(test);
                }
                Err(wrong) => self.bad(key, text, arg.span, wrong.into()),
            }
        }
        tests
    }

    /// Notes a code that is to be read.
    fn geodata(&mut self, what: What, code: &GeoFile, span: Span) {
        self.report.geodata.push(Named {
            what,
            code: code.clone(),
            span,
            section: self.section,
        });
    }

    /// Prefixes, with `geoip: private` built in; other codes are kept for the geodata reader.
    pub(super) fn addresses(&mut self, keys: &[&str], geo: &mut Vec<GeoFile>) -> Vec<Prefix> {
        let mut prefixes = Vec::with_capacity(self.call.args.len());
        for arg in &self.call.args {
            let Some((key, text)) = self.keyed(arg, keys) else {
                continue;
            };
            let file = match key {
                Some("geoip") if text.eq_ignore_ascii_case("private") => {
                    prefixes.extend(PRIVATE.iter().filter_map(|text| prefix(text).ok()));
                    continue;
                }
                Some("geoip") => geo_code("geoip.dat", text),
                Some(_) => geo_file(text),
                None => match prefix(text) {
                    Ok(prefix) => {
                        let finding = network(text, &prefix, arg.span);
                        let name = &self.call.name.text;
                        self.report
                            .found(finding.map(|f| f.about(self.section, name)));
                        prefixes.push(prefix);
                        continue;
                    }
                    Err(why) => Err(why),
                },
            };
            match file {
                Ok(file) => {
                    self.geodata(What::Networks, &file, arg.span);
                    geo.push(file);
                }
                Err(wrong) => self.bad(key, text, arg.span, wrong.into()),
            }
        }
        prefixes
    }
}
