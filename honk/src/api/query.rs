//! Parameters, bodies and pages: from text to values, with errors that name the field.

use axum::{
    extract::{FromRequestParts, Query},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Visitor},
};
use serde_json::Value;

use super::{doc::Page, error::ApiError};

/// Items of a page when nothing is said.
const LIMIT: usize = 200;
/// Most items of a page.
const MAX_LIMIT: usize = 1000;

/// The query of a request. Every `T` refuses unknown parameters: a filter with a typo would
/// match more than was meant.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(e) => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "bad_query",
                e.body_text(),
            )),
        }
    }
}

/// A JSON body. Unknown fields are refused by the types.
pub(super) fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, ApiError> {
    typed(headers, body, &["application/json"])
}

/// A JSON body that may be left out.
pub(super) fn json_or_default<T: DeserializeOwned + Default>(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, ApiError> {
    match body.is_empty() {
        true => Ok(T::default()),
        false => json(headers, body),
    }
}

/// The fields of a JSON object that says what to change.
pub(super) fn merge_patch<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, ApiError> {
    let kinds = ["application/merge-patch+json", "application/json"];
    typed(headers, body, &kinds)
}

fn typed<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
    kinds: &[&str],
) -> Result<T, ApiError> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let kind = kind
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    if !kinds.iter().any(|k| kind.trim().eq_ignore_ascii_case(k)) {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "send the body as application/json",
        ));
    }
    serde_json::from_slice(body).map_err(|e| {
        // The text of the error may quote the body; its place is enough.
        let text = format!(
            "not the expected JSON at line {} column {}",
            e.line(),
            e.column()
        );
        let unknown = e.to_string().starts_with("unknown field");
        let text = if unknown {
            format!("{text}: unknown field")
        } else {
            text
        };
        ApiError::new(StatusCode::BAD_REQUEST, "bad_json", text)
    })
}

/// The query of a route that takes no parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Parameters of every list. Filters repeat them: serde cannot both flatten and refuse.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paging {
    pub(super) limit: Option<String>,
    pub(super) cursor: Option<String>,
    pub(super) fields: Option<String>,
}

/// One page of items that are sorted by a growing key.
pub(super) fn page<T, D: Serialize + DeserializeOwned>(
    items: &[T],
    paging: &Paging,
    key: impl Fn(&T) -> u64,
    document: impl Fn(&T) -> D,
) -> Result<Page<Value>, ApiError> {
    let limit = match &paging.limit {
        None => LIMIT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|n| (1..=MAX_LIMIT).contains(n))
            .ok_or_else(|| ApiError::bad_query("limit", format!("limit is 1..{MAX_LIMIT}")))?,
    };
    let after = match &paging.cursor {
        None => None,
        Some(text) => {
            let number = text.strip_prefix('k').and_then(|n| n.parse::<u64>().ok());
            let bad = || ApiError::bad_query("cursor", "cursor is none of ours");
            Some(number.ok_or_else(bad)?)
        }
    };
    let begin = after.map_or(0, |after| items.partition_point(|i| key(i) <= after));
    let rest = items.get(begin..).unwrap_or_default();
    let shown = &rest[..rest.len().min(limit)];
    let next = shown.last().filter(|_| rest.len() > limit);
    let fields = paging.fields.as_deref().map(selected::<D>).transpose()?;
    let values = shown.iter().map(|item| {
        let mut value = serde_json::to_value(document(item)).unwrap_or_default();
        if let (Some(fields), Some(object)) = (&fields, value.as_object_mut()) {
            object.retain(|name, _| fields.contains(&name.as_str()));
        }
        value
    });
    Ok(Page {
        items: values.collect(),
        next_cursor: next.map(|item| format!("k{}", key(item))),
        total: items.len(),
    })
}

/// The names of a `fields` parameter, which must be fields of `D`.
fn selected<D: DeserializeOwned>(text: &str) -> Result<Vec<&str>, ApiError> {
    let names: Vec<&str> = text.split(',').collect();
    let known = field_names::<D>();
    match names.iter().find(|n| !known.contains(n)) {
        None => Ok(names),
        Some(name) => {
            let text = format!("no field `{name}`; there are {}", known.join(", "));
            Err(ApiError::bad_query("fields", text))
        }
    }
}

/// The fields of a struct, as its derived reader asks for them.
fn field_names<D: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Always an error: there is nothing to read.
    drop(D::deserialize(Asked(&mut names)));
    names
}

/// A reader without data that keeps what it was asked for.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

/// An id in a path.
pub(super) fn id(text: &str, kind: &'static str) -> Result<uuid::Uuid, ApiError> {
    uuid::Uuid::try_parse(text).map_err(|_| ApiError::not_found(kind, format!("no such {kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(limit: &str, cursor: Option<&str>) -> Paging {
        Paging {
            limit: Some(limit.to_owned()),
            cursor: cursor.map(str::to_owned),
            fields: None,
        }
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_repeat() {
        let items = [2u64, 3, 5, 8];
        let get = |p: &Paging| page(&items, p, |i| *i, |i| *i).unwrap();
        let first = get(&paging("3", None));
        assert_eq!(first.items, [2, 3, 5]);
        assert_eq!((first.total, first.next_cursor.as_deref()), (4, Some("k5")));
        let second = get(&paging("3", first.next_cursor.as_deref()));
        assert_eq!(second.items, [8]);
        assert_eq!(second.next_cursor, None);
    }

    #[test]
    fn limits_and_cursors_that_are_none_are_refused() {
        let items = [1u64];
        for p in [paging("0", None), paging("1001", None), paging("x", None)] {
            assert!(page(&items, &p, |i| *i, |i| *i).is_err());
        }
        assert!(page(&items, &paging("1", Some("5")), |i| *i, |i| *i).is_err());
    }

    #[test]
    fn fields_trim_objects() {
        #[derive(Serialize, Deserialize)]
        struct Document {
            a: u64,
            #[serde(rename = "final")]
            last: u64,
        }
        let get = |fields: &str| {
            let p = Paging {
                fields: Some(fields.to_owned()),
                ..Paging::default()
            };
            page(&[1u64], &p, |i| *i, |i| Document { a: *i, last: 2 }).map(|p| p.items)
        };
        assert_eq!(get("a").unwrap(), [serde_json::json!({"a": 1})]);
        assert_eq!(get("final").unwrap(), [serde_json::json!({"final": 2})]);
        assert!(get("a,nope").is_err() && get("last").is_err() && get("").is_err());
    }
}
