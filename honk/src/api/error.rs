//! The error shape of the native API.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// An answer that is not what was asked for.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            details: None,
        }
    }

    /// 404; `kind` is what was looked for.
    pub(crate) fn not_found(kind: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message).details(json!({ "kind": kind }))
    }

    /// 400 for a query parameter.
    pub(crate) fn bad_query(field: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_query", message).details(json!({ "field": field }))
    }

    #[must_use]
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

/// `{error: {code, message, details?}}`; the request id is added by the outermost layer.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(details) = self.details {
            error["details"] = details;
        }
        let body = Json(ErrorBody {
            error: error.clone(),
        });
        let mut response = (self.status, body).into_response();
        response.extensions_mut().insert(ErrorBody { error });
        response
    }
}

/// Kept as an extension of the response, so that the request id can join it.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: Value,
}
