//! Lines of the log for those who watch it: nothing is made while nobody does.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::broadcast;
use tracing::{Event, Subscriber};
use tracing_subscriber::{Layer, layer::Context};

use super::{Fields, Style, index, text_line};
use crate::clock;

/// Lines that wait for one watcher; the oldest go first.
const QUEUE: usize = 256;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// By [`LEVELS`](super::LEVELS).
    pub(crate) level: usize,
    pub(crate) at: String,
    pub(crate) target: &'static str,
    pub(crate) message: String,
    pub(crate) fields: Vec<(String, Value)>,
}

impl Line {
    /// As it stands in the log, without time and level.
    pub(crate) fn text(&self) -> String {
        let style = Style {
            json: false,
            time: false,
            color: false,
        };
        let fields = Fields {
            message: self.message.clone(),
            rest: self.fields.clone(),
        };
        let line = text_line(style, "", "", self.target, &fields);
        line.trim().to_owned()
    }
}

fn lines() -> &'static broadcast::Sender<Arc<Line>> {
    static LINES: OnceLock<broadcast::Sender<Arc<Line>>> = OnceLock::new();
    LINES.get_or_init(|| broadcast::Sender::new(QUEUE))
}

/// Lines from now on that pass the filter of the log.
pub(crate) fn watch() -> broadcast::Receiver<Arc<Line>> {
    lines().subscribe()
}

/// Hands lines to watchers.
pub(super) struct Tail;

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if lines().receiver_count() == 0 {
            return;
        }
        let meta = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        tell(Line {
            level: index(*meta.level()),
            at: clock::now(),
            target: meta.target(),
            message: fields.message,
            fields: fields.rest,
        });
    }
}

/// Watchers may have gone meanwhile.
pub(crate) fn tell(line: Line) {
    let _ = lines().send(Arc::new(line));
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn lines_come_with_their_fields_and_forge_nothing() {
        let mut watched = watch();
        let log = tracing_subscriber::registry().with(Tail);
        tracing::subscriber::with_default(log, || {
            tracing::warn!(target: "honk::tail", count = 3, name = "a\nb", "of\nthis test");
        });
        let line = loop {
            // Other tests may log meanwhile.
            let line = watched.try_recv().unwrap();
            if line.target == "honk::tail" {
                break line;
            }
        };
        assert_eq!(line.level, 1);
        assert_eq!(line.message, "of\nthis test");
        assert_eq!(
            line.text(),
            "honk::tail of\\u{a}this test count=3 name=\"a\\u{a}b\""
        );
    }
}
