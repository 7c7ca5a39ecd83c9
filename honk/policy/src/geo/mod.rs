//! Geodata: lists of names and of networks by code, out of `geosite.dat` and `geoip.dat`.
//!
//! Bytes in, lists out. [`load`] reads each file once, keeps what the configuration names and
//! lets the rest go. Where files lie on disk is the caller's business ([`GeoSource`]); what a
//! missing code means for a rule is decided by the lowering, which calls in here.

mod aggregate;
mod dat;
mod list;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub use list::{Kind, SiteList};

use crate::{config::GeoFile, routing::rule::Prefix};

/// Largest file a source should hand over. Published files are below 20 MiB.
pub const MAX_FILE: usize = 64 << 20;
/// Codes of a file that are looked at for a suggestion.
const SUGGEST_FROM: usize = 4096;
/// Codes of a file that are compared with missing ones.
const COMPARISONS: usize = 20_000;

/// Where geodata files come from.
pub trait GeoSource {
    /// The content of a file; `data_dir` is what the configuration at hand says.
    fn read(&mut self, file: &str, data_dir: Option<&str>) -> Result<Vec<u8>, Unreadable>;
}

/// Why there is no content. The texts end a sentence that begins with the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is in none of the places.
    #[error("is in none of {}", .0.join(", "))]
    Missing(Vec<String>),
    /// It is there, but cannot be used.
    #[error("{0}")]
    Refused(String),
}

/// No files at all.
impl GeoSource for () {
    fn read(&mut self, _: &str, _: Option<&str>) -> Result<Vec<u8>, Unreadable> {
        Err(Unreadable::Refused("cannot be read here".to_owned()))
    }
}

/// Files in memory, by name.
impl GeoSource for HashMap<String, Vec<u8>> {
    fn read(&mut self, file: &str, _: Option<&str>) -> Result<Vec<u8>, Unreadable> {
        let found = self.get(file).cloned();
        found.ok_or_else(|| Unreadable::Missing(vec!["memory".to_owned()]))
    }
}

/// Why a code has no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// The file cannot be had.
    #[error(transparent)]
    File(#[from] Unreadable),
    /// The file is damaged or something else.
    #[error("is no geodata file or is damaged")]
    Corrupt,
    /// The file does not have the code.
    #[error("has no such code")]
    Code {
        /// A code that is spelt like it.
        near: Option<String>,
    },
    /// The code means all addresses that are not in its list.
    #[error(
        "marks that code as inverse, which rules cannot express; write `!` before the function"
    )]
    Inverse,
}

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// Names.
    Sites,
    /// Networks.
    Networks,
}

/// The names of a code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The list.
    pub list: Arc<SiteList>,
    /// Values of the file that are no name and no pattern; they match nothing.
    pub unusable: usize,
}

/// Everything that was looked for.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Names by code.
    pub sites: HashMap<GeoFile, Result<Names, Lack>>,
    /// Networks by code; sorted, none within another.
    pub networks: HashMap<GeoFile, Result<Arc<[Prefix]>, Lack>>,
}

/// Reads every file that is named once and keeps the codes that are wanted.
pub fn load(
    wanted: impl IntoIterator<Item = (What, GeoFile)>,
    source: &mut dyn GeoSource,
    data_dir: Option<&str>,
) -> Found {
    let mut by_file: BTreeMap<String, Vec<(What, GeoFile)>> = BTreeMap::new();
    for (what, code) in wanted {
        let codes = by_file.entry(code.file.clone()).or_default();
        codes.push((what, code));
    }
    let mut found = Found::default();
    for (file, mut codes) in by_file {
        codes.sort_unstable();
        codes.dedup();
        let mut jobs: Vec<Job> = codes.into_iter().map(Job::new).collect();
        match source.read(&file, data_dir) {
            Ok(bytes) => scan(&bytes, &mut jobs),
            Err(why) => jobs.iter_mut().for_each(|job| job.fail(why.clone().into())),
        }
        for job in jobs {
            job.finish(&mut found);
        }
    }
    found
}

/// One code that is wanted and what was found of it.
struct Job {
    code: GeoFile,
    data: Data,
    /// Some entry has the code.
    seen: bool,
    lack: Option<Lack>,
}

enum Data {
    Sites(dat::Sites),
    Networks(Vec<Prefix>),
}

impl Job {
    fn new((what, code): (What, GeoFile)) -> Self {
        let data = match what {
            What::Sites => Data::Sites(dat::Sites::default()),
            What::Networks => Data::Networks(Vec::new()),
        };
        Self {
            code,
            data,
            seen: false,
            lack: None,
        }
    }

    /// The first reason counts.
    fn fail(&mut self, lack: Lack) {
        self.lack.get_or_insert(lack);
    }

    /// A code that stands in the file twice has the names of both entries.
    fn add(&mut self, entry: dat::Entry<'_>) {
        self.seen = true;
        let added = match &mut self.data {
            Data::Sites(sites) => sites.add(entry, self.code.attr.as_deref()).map(|()| true),
            Data::Networks(list) => dat::prefixes(entry, list),
        };
        match added {
            Ok(true) => {}
            Ok(false) => self.fail(Lack::Inverse),
            Err(wire::Corrupt) => self.fail(Lack::Corrupt),
        }
    }

    fn finish(self, found: &mut Found) {
        let good = self.lack.map_or(Ok(()), Err);
        match self.data {
            Data::Sites(sites) => {
                let names = good.map(|()| Names {
                    unusable: sites.unusable,
                    list: Arc::new(sites.finish()),
                });
                found.sites.insert(self.code, names);
            }
            Data::Networks(list) => {
                let list = good.map(|()| aggregate::aggregate(list).into());
                found.networks.insert(self.code, list);
            }
        }
    }
}

fn scan(bytes: &[u8], jobs: &mut [Job]) {
    let mut by_code: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, job) in jobs.iter().enumerate() {
        by_code.entry(job.code.code.clone()).or_default().push(at);
    }
    for entry in dat::entries(bytes) {
        let Ok(entry) = entry else {
            jobs.iter_mut().for_each(|job| job.fail(Lack::Corrupt));
            return;
        };
        let wanted = by_code.get(&entry.code.to_lowercase());
        for &at in wanted.into_iter().flatten() {
            jobs[at].add(entry);
        }
    }
    let missing = jobs.iter().filter(|job| !job.seen).count();
    let codes = match missing {
        0 => Vec::new(),
        _ => codes(bytes),
    };
    let mut suggestions = COMPARISONS / codes.len().max(1);
    for job in jobs.iter_mut().filter(|job| !job.seen) {
        let near = match suggestions.checked_sub(1) {
            Some(left) => {
                suggestions = left;
                honk_grammar::suggest(&job.code.code, codes.iter().map(String::as_str))
            }
            None => Vec::new(),
        };
        let near = near.first().map(|code| (*code).to_owned());
        job.fail(Lack::Code { near });
    }
}

/// Codes of a file that may be suggested.
fn codes(bytes: &[u8]) -> Vec<String> {
    let printable = |code: &String| code.bytes().all(|b| b.is_ascii_graphic());
    dat::entries(bytes)
        .flatten()
        .take(SUGGEST_FROM)
        .map(|entry| entry.code.to_lowercase())
        .filter(printable)
        .collect()
}
