//! Names and ids on the command line, whole lists behind pages.

use serde::de::DeserializeOwned;

use super::{client::Client, exit::Failure};
use crate::api::doc::Page;

/// Largest page the daemon gives.
const PAGE: usize = 1000;

/// All items of a list, page by page.
pub(crate) async fn all<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut cursor = None::<String>;
    let join = if path.contains('?') { '&' } else { '?' };
    loop {
        let from = cursor.map_or(String::new(), |c| format!("&cursor={}", encode(&c)));
        let page: Page<T> = client
            .get(&format!("{path}{join}limit={PAGE}{from}"))
            .await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// Whether a word is an id rather than a name.
pub(crate) fn is_id(word: &str) -> bool {
    word.len() == 36 && uuid::Uuid::try_parse(word).is_ok()
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            safe.push_str(&format!("%{byte:02X}"));
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_into_a_path() {
        assert_eq!(encode("a b/?#%香"), "a%20b%2F%3F%23%25%E9%A6%99");
        assert!(is_id("00000000-0000-4000-8000-000000000001"));
        assert!(!is_id("proxy"));
    }
}
