//! Native HTTP API: routes, documents, errors.
//!
//! One router for every listener; a listener adds how it knows its clients. Handlers read a
//! snapshot, call the engine, and answer with a document of [`doc`]; they hold no state.

mod config;
mod connections;
mod datapath;
mod dns;
pub(crate) mod doc;
pub(crate) mod error;
mod etag;
mod groups;
mod layer;
mod measure;
mod metrics;
mod metrics_health;
mod nodes;
mod query;
mod reload;
mod seats;
pub(crate) mod server;
mod status;
mod subscriptions;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{delete, get, post},
};
use tokio::sync::Semaphore;

use self::error::ApiError;
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
}

/// All routes.
pub(crate) fn router(engine: Arc<Engine>) -> Router {
    let shared = Shared {
        engine,
        scrapes: Arc::new(Semaphore::new(SCRAPES)),
    };
    let validate = post(config::validate).layer(DefaultBodyLimit::max(DOCUMENT));
    let api = Router::new()
        .route("/", get(status::discovery))
        .route("/status", get(status::status))
        .route("/groups", get(groups::list))
        .route("/groups/{id}", get(groups::one))
        .route("/groups/by-name/{name}", get(groups::by_name))
        .route(
            "/groups/{id}/selection",
            get(groups::selection)
                .put(groups::select)
                .delete(groups::unselect),
        )
        .route("/groups/{id}/test", post(measure::test_group))
        .route("/groups/{id}/measurements", get(measure::measurements))
        .route("/nodes/{id}/delay-test", post(measure::ping))
        .route("/tests", get(measure::list).post(measure::begin))
        .route("/tests/{id}", get(measure::one).delete(measure::cancel))
        .route("/nodes", get(nodes::list))
        .route("/nodes/{id}", get(nodes::one))
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
        .route("/datapath", get(datapath::datapath))
        .route("/dns/map", get(dns::map));
    Router::new()
        .route("/api/v1", get(status::discovery))
        .nest("/api/v1/", api)
        .route("/metrics", get(metrics::scrape))
        .route("/healthz", get(status::health))
        .route("/readyz", get(status::ready))
        .fallback(|| async { ApiError::not_found("path", "no such path") })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            layer::envelope,
        ))
        .with_state(shared)
}
