//! One attempt from beginning to end: fetch or file, reading, the copy on disk.

use std::{path::Path, sync::Arc};

use honk_grammar::LoadError;
use honk_policy::{
    config::{Source, Subscription},
    id::Uuid,
    subscription::MAX_BODY,
};

use super::{
    Good, Net, Progress, Reader, Via,
    error::FetchError,
    http::{self, Answer, Ask},
    store::{self, Store, Stored},
    target::Target,
};
use crate::clock;

/// An attempt that is due.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: Uuid,
    pub(crate) decl: Subscription,
    /// The body in use.
    pub(super) had: Option<Arc<Good>>,
    pub(super) store: Option<Store>,
    pub(crate) progress: Arc<Progress>,
}

impl Job {
    /// Nodes in use.
    pub(crate) fn active(&self) -> usize {
        self.had.as_ref().map_or(0, |good| good.nodes.len())
    }
}

/// What a successful attempt brought.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// Another body, or the first.
    New(Box<Good>),
    /// The same as before, at a later time.
    Same(Box<Good>),
}

/// Carries an attempt out. `reader` reads the file of a `file://` subscription.
pub(crate) async fn perform<R>(net: &Net, job: &Job, reader: R) -> Result<Fetched, FetchError>
where
    R: Fn(&Subscription) -> Result<Vec<u8>, LoadError> + Send + 'static,
{
    let (decl, id) = (job.decl.clone(), job.id);
    if decl.source == Source::File {
        let read = move || read_file(&decl, id, &reader);
        return blocking(read)
            .await
            .map(|good| Fetched::New(Box::new(good)));
    }
    let ask = Ask {
        target: Target::parse(decl.url.reveal())?,
        user_agent: decl
            .user_agent
            .clone()
            .unwrap_or_else(|| format!("honk/{}", env!("CARGO_PKG_VERSION"))),
        allow_private: decl.allow_private,
        validators: job
            .had
            .as_ref()
            .map(|good| good.validators.clone())
            .unwrap_or_default(),
    };
    let answer = http::fetch(net, &ask, &job.progress).await?;
    job.progress.reading();
    let (bytes, validators, headers) = match (answer, &job.had) {
        (
            Answer::Body {
                bytes,
                validators,
                headers,
            },
            _,
        ) => (bytes, validators, headers),
        (Answer::Unchanged { headers }, Some(had)) => {
            let good = had.confirmed(&headers, clock::now_ms());
            return Ok(Fetched::Same(Box::new(good)));
        }
        // Not asked for: nothing was there to be unchanged.
        (Answer::Unchanged { .. }, None) => {
            let host = ask.target.authority();
            return Err(FetchError::Status { host, status: 304 });
        }
    };
    let stored = Stored {
        bytes,
        validators,
        headers: headers
            .into_iter()
            .map(|(name, v)| (name.to_owned(), v))
            .collect(),
        fetched_ms: clock::now_ms(),
    };
    let store = job.store.clone();
    blocking(move || {
        let good = Good::read(&decl, id, &stored, Via::Network)?;
        if let Some(Err(error)) = store.map(|store| store.save(&decl, &stored)) {
            tracing::warn!(
                target: "honk::subscription",
                tag = decl.tag,
                %error,
                "no copy is kept: a start without network will miss these nodes"
            );
        }
        Ok(good)
    })
    .await
    .map(|good| Fetched::New(Box::new(good)))
}

/// Long bodies take long to read, files may be slow: not on the threads that carry flows.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(FetchError::Stopped(e)))
}

/// Reads a `file://` subscription.
pub(super) fn read_file(
    decl: &Subscription,
    id: Uuid,
    reader: Reader<'_>,
) -> Result<Good, FetchError> {
    let bytes = reader(decl).map_err(|e| match e {
        LoadError::TooLarge(_) => FetchError::TooLong,
        e => FetchError::File(e),
    })?;
    let stored = Stored {
        bytes: without_instruction(bytes),
        fetched_ms: clock::now_ms(),
        ..Stored::default()
    };
    Good::read(decl, id, &stored, Via::File)
}

/// A first line that begins with `@` is reserved for instructions to programs.
fn without_instruction(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.first() == Some(&b'@') {
        let end = bytes
            .iter()
            .position(|b| *b == b'\n')
            .unwrap_or(bytes.len());
        bytes.drain(..end);
    }
    bytes
}

/// `persist.d/TAG.sub` beside the configuration, where dae keeps its copies.
pub(super) fn seed(config_dir: &Path, decl: &Subscription) -> Option<Stored> {
    let plain = |c: char| !c.is_control() && c != '/';
    let tag = decl.tag.as_str();
    if decl.source != Source::StoredWeb || !tag.chars().all(plain) || tag.starts_with('.') {
        return None;
    }
    let path = config_dir.join("persist.d").join(format!("{tag}.sub"));
    let bytes = store::read(&path, MAX_BODY as u64).ok()?;
    Some(Stored {
        bytes,
        ..Stored::default()
    })
}
