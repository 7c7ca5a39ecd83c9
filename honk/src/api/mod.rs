//! Native HTTP API: routes, documents, errors.
//!
//! One router for every listener; a listener adds how it knows its clients. Handlers read a
//! snapshot, call the engine, and answer with a document of [`doc`]; they hold no state.

mod accept;
mod clash;
mod config;
mod connections;
mod datapath;
mod dns;
pub(crate) mod doc;
pub(crate) mod error;
mod etag;
mod events;
mod feed;
mod groups;
pub(crate) mod guard;
mod layer;
pub(crate) mod mask;
mod measure;
mod metrics;
mod metrics_health;
mod metrics_score;
mod nodes;
mod patch;
mod ping_settings;
mod query;
mod reload;
mod samples;
mod score;
mod seats;
pub(crate) mod server;
mod stall;
mod stats;
mod status;
mod subscriptions;
pub(crate) mod tcp;
mod trace;
pub(crate) mod ui;

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicUsize};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{delete, get, post},
};
use tokio::sync::Semaphore;

use self::{doc::Diag, error::ApiError, guard::Guard, mask::Mask};
use crate::app::engine::Engine;

/// Largest body of most requests.
const BODY: usize = 64 * 1024;
/// Largest document to validate.
const DOCUMENT: usize = 1 << 20;
/// Scrapes at a time.
const SCRAPES: usize = 2;

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    engine: Arc<Engine>,
    scrapes: Arc<Semaphore>,
    mask: Arc<Mask>,
    /// Held while a file is edited.
    edits: Arc<tokio::sync::Mutex<()>>,
    streams: Arc<events::Streams>,
    /// Of connections, for dashboards, and how many look at them.
    frames: Arc<clash::connections::Frames>,
    watching: Arc<AtomicUsize>,
    /// What is wrong with listeners.
    warnings: Arc<[Diag]>,
    /// Where the files of a dashboard are.
    ui: Option<ui::Folder>,
}

/// The API of a daemon, for any number of listeners.
#[derive(Debug)]
pub(crate) struct Api(Shared);

impl Api {
    pub(crate) fn new(engine: Arc<Engine>, mask: Mask, warnings: Vec<Diag>) -> Self {
        Self(Shared {
            engine,
            scrapes: Arc::new(Semaphore::new(SCRAPES)),
            mask: Arc::new(mask),
            edits: Arc::default(),
            streams: Arc::default(),
            frames: Arc::default(),
            watching: Arc::default(),
            warnings: warnings.into(),
            ui: None,
        })
    }

    /// Also serves the files of a dashboard.
    #[must_use]
    pub(crate) fn with_ui(self, ui: Option<ui::Folder>) -> Self {
        Self(Shared { ui, ..self.0 })
    }

    /// All routes, for clients whom the kernel knows.
    pub(crate) fn socket(&self) -> Router {
        self.enveloped(everything())
    }

    /// All routes, for clients whom the guard lets pass.
    pub(crate) fn tcp(&self, guard: &Arc<Guard>) -> Router {
        self.enveloped(guarded(everything(), guard, self.0.ui.is_some()))
    }

    /// What a collector of metrics needs.
    pub(crate) fn metrics(&self, guard: &Arc<Guard>) -> Router {
        self.enveloped(guarded(supervised(), guard, false))
    }

    /// The outermost layers. What is refused before any route has the same shape.
    fn enveloped(&self, routes: Router<Shared>) -> Router {
        let envelope = middleware::from_fn_with_state(self.0.clone(), layer::envelope);
        routes.layer(envelope).with_state(self.0.clone())
    }
}

/// All routes without anybody at the door, for tests.
#[cfg(test)]
pub(crate) fn router(engine: Arc<Engine>) -> Router {
    Api::new(engine, Mask::default(), Vec::new()).socket()
}

/// The first layer to see a request is the last one here.
fn guarded(routes: Router<Shared>, guard: &Arc<Guard>, page: bool) -> Router<Shared> {
    let state = (Arc::clone(guard), page);
    let routes = routes.layer(middleware::from_fn_with_state(state, guard::authenticate));
    let routes = match guard.cors() {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.layer(middleware::from_fn_with_state(
        Arc::clone(guard),
        guard::gate,
    ))
}

/// Metrics and health.
fn supervised() -> Router<Shared> {
    Router::new()
        .route("/metrics", get(metrics::scrape))
        .route("/healthz", get(status::health))
        .route("/readyz", get(status::ready))
        .fallback(|| async { ApiError::not_found("path", "no such path") })
}

fn everything() -> Router<Shared> {
    let validate = post(config::validate).layer(DefaultBodyLimit::max(DOCUMENT));
    let api = Router::new()
        .route("/", get(status::discovery))
        .route("/status", get(status::status))
        .route("/banners/{id}/ack", post(status::acknowledge))
        .route("/groups", get(groups::list))
        .route("/groups/{id}", get(groups::one).patch(patch::patch))
        .route("/groups/by-name/{name}", get(groups::by_name))
        .route(
            "/groups/{id}/selection",
            get(groups::selection)
                .put(groups::select)
                .delete(groups::unselect),
        )
        .route(
            "/ping-settings",
            get(ping_settings::read)
                .put(ping_settings::write)
                .delete(ping_settings::reset),
        )
        .route(
            "/groups/{id}/ping-settings",
            get(ping_settings::read_group)
                .put(ping_settings::write_group)
                .delete(ping_settings::reset_group),
        )
        .route("/groups/{id}/test", post(measure::test_group))
        .route("/groups/{id}/delay-test", post(measure::members))
        .route("/groups/{id}/measurements", get(measure::measurements))
        .route("/nodes/{id}/delay-test", post(measure::ping))
        .route("/tests", get(measure::list).post(measure::begin))
        .route("/tests/{id}", get(measure::one).delete(measure::cancel))
        .route("/nodes", get(nodes::list))
        .route("/nodes/{id}", get(nodes::one).patch(nodes::switch))
        .route(
            "/connections",
            get(connections::list).delete(connections::close),
        )
        .route("/connections/{id}", delete(connections::close_one))
        .route("/reload", get(reload::state).post(reload::begin))
        .route("/subscriptions", get(subscriptions::list))
        .route("/subscriptions/{id}", get(subscriptions::one))
        .route("/subscriptions/{id}/refresh", post(subscriptions::refresh))
        .route("/suspend", post(reload::suspend))
        .route("/resume", post(reload::resume))
        .route("/config", get(config::info))
        .route("/config/validate", validate)
        .route("/events", get(events::stream))
        .route("/datapath", get(datapath::datapath))
        .route("/dns/map", get(dns::map))
        .route("/trace/flows", get(trace::flows));
    supervised()
        .route("/stats", get(stats::stats))
        .route("/api/v1", get(status::discovery))
        .nest("/api/v1/", api)
        .merge(clash::routes())
        .merge(ui::routes())
        .layer(DefaultBodyLimit::max(BODY))
}
