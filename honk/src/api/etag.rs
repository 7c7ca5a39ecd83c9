//! Revisions as entity tags: what a client has seen (`If-None-Match`) and what it builds on
//! (`If-Match`).
//!
//! A configured thing has its revision as tag, `"g-..."` for a group and `"c-..."` for the
//! configuration; any other answer has a hash of its body. Tags are strong; weak ones of a
//! client match nothing.

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::error::ApiError;

/// A document under a revision.
#[derive(Debug)]
pub(super) struct Tagged<T>(pub(super) String, pub(super) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.1).into_response();
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", self.0)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// A prefix and the first 16 digits of a hash.
pub(super) fn revision(prefix: &str, bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let digits: String = hash.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("{prefix}-{digits}")
}

/// Fails with 412 unless the client builds on one of the `current` revisions, or on none.
pub(super) fn check(headers: &HeaderMap, current: &[&str]) -> Result<(), ApiError> {
    if !headers.contains_key(header::IF_MATCH) || matches(headers, header::IF_MATCH, current) {
        return Ok(());
    }
    Err(mismatch(current.first().copied().unwrap_or_default()))
}

/// 412 with what is current.
pub(super) fn mismatch(current: &str) -> ApiError {
    let text = "another configuration is active by now";
    let error = ApiError::new(StatusCode::PRECONDITION_FAILED, "revision_mismatch", text);
    error.details(serde_json::json!({ "current": current }))
}

/// Gives an answer its tag, and leaves the body out when the client has it already.
pub(super) async fn conditional(response: Response, asked: &HeaderMap) -> Response {
    let stream = response.headers().get(header::CONTENT_TYPE);
    if response.status() != StatusCode::OK || stream.is_some_and(|t| t == "text/event-stream") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // Bodies of this API are whole in memory already.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let known = parts.headers.get(header::ETAG).cloned();
    let tag = known.or_else(|| {
        let own = revision("b", &bytes);
        HeaderValue::from_str(&format!("\"{own}\"")).ok()
    });
    let Some(tag) = tag else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let current = tag
        .to_str()
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned();
    parts.headers.insert(header::ETAG, tag);
    let mut body = bytes;
    if matches(asked, header::IF_NONE_MATCH, &[&current]) {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.remove(header::CONTENT_TYPE);
        body = Bytes::new();
    }
    Response::from_parts(parts, Body::from(body))
}

/// Whether a list of tags has `*` or one of `current`.
fn matches(headers: &HeaderMap, name: header::HeaderName, current: &[&str]) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|tag| {
            let strong = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
            tag == "*" || strong.is_some_and(|tag| current.contains(&tag))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_stars_match_and_weak_tags_do_not() {
        let fits = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, text.parse().unwrap());
            check(&headers, &["g-1", "c-2"]).is_ok()
        };
        for text in ["\"g-1\"", "\"c-2\"", "\"x\", \"g-1\"", "*"] {
            assert!(fits(text), "{text}");
        }
        for text in ["\"g-2\"", "W/\"g-1\"", "g-1", "", "\"g-1"] {
            assert!(!fits(text), "{text}");
        }
        assert!(check(&HeaderMap::new(), &["g-1"]).is_ok());
    }

    #[test]
    fn revisions_have_sixteen_digits() {
        let text = revision("g", b"x");
        assert_eq!((text.len(), &text[..2]), (18, "g-"));
        assert_ne!(text, revision("g", b"y"));
    }
}
