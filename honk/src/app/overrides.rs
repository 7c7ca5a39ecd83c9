//! Settings of measurements that are changed while the daemon runs: URL and deadline, for all or
//! for a group. They hold from the next measurement on, and over a restart.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use honk_policy::{
    config::{CheckUrl, Typed},
    group::Group,
};
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use crate::state::file;

/// Groups with settings of their own; the configuration has no more groups.
const MAX_GROUPS: usize = 250;
/// Deadline where nobody names one.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What is set; each half by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pair {
    pub(crate) url: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
}

impl Pair {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A URL that is none counts as not set: the file may come from elsewhere.
    fn url(&self) -> Option<CheckUrl> {
        self.url
            .as_deref()
            .and_then(|url| CheckUrl::parse(url).ok())
    }

    fn timeout(&self) -> Option<Duration> {
        let ms = self.timeout_ms.filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Held {
    all: Pair,
    /// By name: ids of groups end with the process.
    groups: BTreeMap<String, Pair>,
}

/// Who says what holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    GroupOverride,
    Group,
    Override,
    Global,
    Default,
}

impl Level {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GroupOverride => "group_override",
            Self::Group => "group",
            Self::Override => "override",
            Self::Global => "global",
            Self::Default => "default",
        }
    }
}

/// What a measurement uses, and who says so.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    pub(crate) url: (CheckUrl, Level),
    pub(crate) timeout: (Duration, Level),
}

/// The settings and where they are kept.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    path: Option<PathBuf>,
    held: Mutex<Held>,
}

impl Overrides {
    /// What an earlier process left. A file that cannot be read costs the settings only.
    pub(crate) fn load(path: PathBuf) -> Self {
        let read = file::read_json::<Held>(&path).map(Option::unwrap_or_default);
        let held = read.unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(target: "honk::health", %error, %path, "settings of measurements are lost");
            Held::default()
        });
        Self {
            path: Some(path),
            held: Mutex::new(held),
        }
    }

    /// What is set for a group, or for all.
    pub(crate) fn of(&self, group: Option<&str>) -> Pair {
        let held = self.lock();
        match group {
            None => held.all.clone(),
            Some(group) => held.groups.get(group).cloned().unwrap_or_default(),
        }
    }

    /// Sets or, with an empty pair, resets. `known` are the groups there are: settings of others
    /// go. Blocks while the file is written; what is set holds even if that fails.
    pub(crate) fn set(
        &self,
        group: Option<&str>,
        pair: Pair,
        known: &dyn Fn(&str) -> bool,
    ) -> io::Result<()> {
        let text = {
            let mut held = self.lock();
            held.groups.retain(|name, _| known(name));
            match group {
                None => held.all = pair,
                Some(group) if pair.is_empty() => {
                    held.groups.remove(group);
                }
                Some(group) => {
                    if held.groups.len() >= MAX_GROUPS && !held.groups.contains_key(group) {
                        return Err(io::Error::from(io::ErrorKind::QuotaExceeded));
                    }
                    held.groups.insert(group.to_owned(), pair);
                }
            }
            serde_json::to_vec_pretty(&*held)?
        };
        match &self.path {
            Some(path) => file::keep(path, &text),
            None => Ok(()),
        }
    }

    /// The levels from the nearest to the furthest, URL and deadline each for itself.
    pub(crate) fn effective(&self, snapshot: &Snapshot, group: Option<&Group>) -> Effective {
        let own = group.map(|g| self.of(Some(&g.name))).unwrap_or_default();
        let all = self.of(None);
        let declared = group.map(|g| &g.def.probing);
        let written = |key| match snapshot.config.settings.global(key) {
            Some(Typed::Text(text)) if !text.is_empty() => CheckUrl::parse(&text).ok(),
            _ => None,
        };
        let level = |key: &str| match snapshot.config.settings.get(&format!("global.{key}")) {
            Some(_) => Level::Global,
            None => Level::Default,
        };
        let of_group = declared.and_then(|p| p.ping_url.as_deref());
        let urls = [
            (own.url(), Level::GroupOverride),
            (
                of_group.and_then(|url| CheckUrl::parse(url).ok()),
                Level::Group,
            ),
            (all.url(), Level::Override),
            (written("ping_url"), level("ping_url")),
        ];
        let url = urls
            .into_iter()
            .find_map(|(url, level)| Some((url?, level)));
        let global = match snapshot.config.settings.global("ping_timeout") {
            Some(Typed::Millis(ms)) if ms > 0 => Some(Duration::from_millis(ms.unsigned_abs())),
            _ => None,
        };
        let of_group = declared.and_then(|p| p.ping_timeout_ms);
        let timeouts = [
            (own.timeout(), Level::GroupOverride),
            (of_group.map(Duration::from_millis), Level::Group),
            (all.timeout(), Level::Override),
            (global, level("ping_timeout")),
        ];
        let timeout = timeouts
            .into_iter()
            .find_map(|(t, level)| Some((t?, level)));
        Effective {
            url: url.unwrap_or_else(|| (super::health::default_url(), Level::Default)),
            timeout: timeout.unwrap_or((TIMEOUT, Level::Default)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::file::tests::scratch;

    #[test]
    fn settings_come_back_after_a_restart_and_go_with_their_group() {
        let dir = scratch("ping");
        let path = dir.join("state/ping.json");
        let pair = |ms| Pair {
            url: None,
            timeout_ms: Some(ms),
        };
        let all = |_: &str| true;
        let overrides = Overrides::load(path.clone());
        overrides.set(None, pair(100), &all).unwrap();
        overrides.set(Some("a"), pair(200), &all).unwrap();
        overrides.set(Some("b"), pair(300), &all).unwrap();
        let again = Overrides::load(path.clone());
        assert_eq!(
            (again.of(None), again.of(Some("a"))),
            (pair(100), pair(200))
        );
        again.set(Some("b"), Pair::default(), &all).unwrap();
        assert_eq!(again.of(Some("b")), Pair::default());
        again
            .set(None, Pair::default(), &|name| name != "a")
            .unwrap();
        assert_eq!(Overrides::load(path.clone()).of(Some("a")), Pair::default());
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Overrides::load(path).of(None), Pair::default());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn there_is_a_cap_on_groups() {
        let (overrides, all) = (Overrides::default(), |_: &str| true);
        let pair = || Pair {
            url: None,
            timeout_ms: Some(100),
        };
        for n in 0..MAX_GROUPS {
            overrides.set(Some(&n.to_string()), pair(), &all).unwrap();
        }
        assert!(overrides.set(Some("more"), pair(), &all).is_err());
        overrides.set(Some("0"), pair(), &all).unwrap();
    }
}
