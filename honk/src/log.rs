//! Log set-up: filter, line formats, counters, escaping of foreign text.
//!
//! Lines go to stderr, as text or as one JSON object each. What is worth a line is decided
//! where it happens; secrets never reach this room, because their types print `***`.

pub(crate) mod tail;

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Map, Value, json};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

use crate::clock;

/// Levels in the order of [`counts`].
pub(crate) const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

static COUNTS: [AtomicU64; LEVELS.len()] = [const { AtomicU64::new(0) }; LEVELS.len()];

/// Lines written so far, by level.
pub(crate) fn counts() -> [u64; LEVELS.len()] {
    std::array::from_fn(|i| COUNTS[i].load(Ordering::Relaxed))
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) json: bool,
    pub(crate) time: bool,
    pub(crate) color: bool,
}

impl Style {
    /// Text; times and colours as stderr can use them. Under the journal the time is left out,
    /// because the journal adds its own.
    pub(crate) fn auto() -> Self {
        let tty = io::stderr().is_terminal();
        Self {
            json: false,
            time: std::env::var_os("JOURNAL_STREAM").is_none() || tty,
            color: tty && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        }
    }
}

/// Changes the filter while the daemon runs.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    /// `None`: the filter was given from outside and the configuration does not change it.
    live: Option<reload::Handle<EnvFilter, Registry>>,
    /// What was asked for last.
    level: Arc<Mutex<String>>,
}

impl Handle {
    fn new(live: Option<reload::Handle<EnvFilter, Registry>>, level: &str) -> Self {
        Self {
            live,
            level: Arc::new(Mutex::new(level.to_owned())),
        }
    }

    /// A handle without a log behind it.
    #[cfg(test)]
    pub(crate) fn inert() -> Self {
        Self::new(None, "info")
    }

    /// Applies `global.log_level`, or what somebody wants until the next reload. False when the
    /// filter is not ours to change.
    pub(crate) fn apply(&self, level: &str) -> bool {
        let Some(live) = &self.live else {
            return false;
        };
        let applied = filter(level).map_err(|e| e.to_string());
        let applied = applied.and_then(|f| live.reload(f).map_err(|e| e.to_string()));
        match applied {
            Ok(()) => {
                let mut kept = self.level.lock().unwrap_or_else(PoisonError::into_inner);
                level.clone_into(&mut kept);
                true
            }
            Err(e) => {
                tracing::warn!(level, error = %e, "log level not applied");
                false
            }
        }
    }

    /// The level or filter in force.
    pub(crate) fn level(&self) -> String {
        let level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        level.clone()
    }
}

/// A filter nobody can parse.
#[derive(Debug, thiserror::Error)]
#[error(
    "log filter `{text}` is not understood: {cause}; use error, warn, info, debug, trace or target=level"
)]
pub(crate) struct BadFilter {
    text: String,
    cause: String,
}

/// Installs the log of the process. `explicit` comes from flag or environment and wins over
/// the configuration for good.
pub(crate) fn install(explicit: Option<&str>, style: Style) -> Result<Handle, BadFilter> {
    let level = explicit.unwrap_or("info");
    let (layer, handle) = reload::Layer::new(filter(level)?);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(style.color)
        .with_writer(io::stderr)
        .event_format(Lines(style));
    let registry = tracing_subscriber::registry();
    // A second installation happens in tests only and changes nothing.
    let registry = registry.with(layer).with(Counter).with(tail::Tail);
    let _ = registry.with(lines).try_init();
    Ok(Handle::new(explicit.is_none().then_some(handle), level))
}

/// A bare level concerns honk itself; libraries stay at `warn`.
fn filter(text: &str) -> Result<EnvFilter, BadFilter> {
    let level = if text.eq_ignore_ascii_case("warning") {
        "warn"
    } else {
        text
    };
    let known = LEVELS.iter().any(|l| l.eq_ignore_ascii_case(level));
    let full = if known {
        format!("warn,honk={level}")
    } else {
        level.to_owned()
    };
    EnvFilter::try_new(full).map_err(|e| BadFilter {
        text: text.to_owned(),
        cause: e.to_string(),
    })
}

/// Counts lines by level.
struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        COUNTS[index(*event.metadata().level())].fetch_add(1, Ordering::Relaxed);
    }
}

fn index(level: Level) -> usize {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}

/// The line formats.
struct Lines(Style);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = LEVELS[index(*meta.level())];
        let line = if self.0.json {
            json_line(&clock::now(), level, meta.target(), fields)
        } else {
            text_line(self.0, &clock::now(), level, meta.target(), &fields)
        };
        writer.write_str(&line)
    }
}

fn json_line(ts: &str, level: &str, target: &str, fields: Fields) -> String {
    let rest: Map<String, Value> = fields.rest.into_iter().collect();
    let line = json!({
        "ts": ts, "level": level, "target": target, "msg": fields.message, "fields": rest,
    });
    format!("{line}\n")
}

fn text_line(style: Style, ts: &str, level: &str, target: &str, fields: &Fields) -> String {
    let mut line = String::new();
    if style.time {
        // People at a terminal know the date.
        let shown = if style.color { ts.get(11..23) } else { None };
        line.push_str(shown.unwrap_or(ts));
        line.push(' ');
    }
    let level = format!("{:5}", level.to_uppercase());
    let color = match level.trim_end() {
        "ERROR" => "31",
        "WARN" => "33",
        "INFO" => "32",
        _ => "2",
    };
    if style.color {
        line.push_str(&format!("\x1b[{color}m{level}\x1b[0m"));
    } else {
        line.push_str(&level);
    }
    line.push(' ');
    line.push_str(target);
    line.push(' ');
    line.push_str(&escape(&fields.message));
    for (key, value) in &fields.rest {
        let text = match value {
            Value::String(s) if plain(s) => s.clone(),
            Value::String(s) => format!("\"{}\"", escape(s).replace('"', "\\\"")),
            other => other.to_string(),
        };
        let _ = write!(line, " {key}={text}");
    }
    line.push('\n');
    line
}

/// Whether a value needs no quotes.
fn plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"')
}

/// Names come from other people's files: no control character reaches the terminal, and no
/// line break forges a line.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Fields of one event.
#[derive(Default)]
struct Fields {
    message: String,
    rest: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.rest.push((field.name().to_owned(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.add(field, value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TS: &str = "2026-09-28T10:11:12.345Z";

    fn fields() -> Fields {
        Fields {
            message: "group selection\nforged line".into(),
            rest: vec![
                ("group".into(), "a b\x1b[31m".into()),
                ("count".into(), 3.into()),
                ("leaf".into(), "hk".into()),
            ],
        }
    }

    #[test]
    fn foreign_text_can_neither_forge_lines_nor_steer_the_terminal() {
        let style = Style {
            json: false,
            time: true,
            color: false,
        };
        let line = text_line(style, TS, "info", "honk::group", &fields());
        assert_eq!(
            line,
            "2026-09-28T10:11:12.345Z INFO  honk::group group selection\\u{a}forged line \
             group=\"a b\\u{1b}[31m\" count=3 leaf=hk\n"
        );
    }

    #[test]
    fn json_lines_keep_fields_apart() {
        let line = json_line(TS, "warn", "honk::api", fields());
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["msg"], "group selection\nforged line");
        assert_eq!(value["fields"]["count"], 3);
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn a_level_that_no_filter_takes_is_not_told() {
        let (layer, live) = reload::Layer::<EnvFilter, Registry>::new(filter("info").unwrap());
        let handle = Handle::new(Some(live), "info");
        assert!(!handle.apply("honk=loud"));
        assert!(handle.apply("debug"));
        assert_eq!(handle.level(), "debug");
        // The log is gone.
        drop(layer);
        assert!(!handle.apply("trace"));
        assert_eq!(handle.level(), "debug");
    }

    #[test]
    fn a_bare_level_leaves_libraries_at_warn_and_nonsense_is_refused() {
        assert_eq!(filter("debug").unwrap().to_string(), "honk=debug,warn");
        assert_eq!(filter("warning").unwrap().to_string(), "honk=warn,warn");
        assert!(filter("honk::dial=debug").is_ok());
        let error = filter("honk=loud").unwrap_err().to_string();
        assert!(error.contains("honk=loud"), "{error}");
    }
}
