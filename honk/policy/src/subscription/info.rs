//! What a provider says about the account: in HTTP headers, or in comments of the body.

use crate::node::text::{base64_text, display_name, percent_decode};

/// Facts about a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Traffic and expiry.
    pub user: Option<UserInfo>,
    /// Title chosen by the provider.
    pub title: Option<String>,
    /// Hours between updates, 1 to 720.
    pub interval_hours: Option<u16>,
}

/// Traffic in bytes and expiry in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Sent so far.
    pub upload: Option<u64>,
    /// Received so far.
    pub download: Option<u64>,
    /// Allowed.
    pub total: Option<u64>,
    /// When the account ends.
    pub expire: Option<u64>,
}

impl UserInfo {
    /// Reads `upload=1; download=2; total=3; expire=4`, in any order.
    pub fn parse(text: &str) -> Option<Self> {
        let mut info = Self::default();
        for part in text.split(';') {
            let Some((key, value)) = part.split_once('=') else {
                continue;
            };
            let value = number(value);
            match key.trim().to_ascii_lowercase().as_str() {
                "upload" => info.upload = value,
                "download" => info.download = value,
                "total" => info.total = value,
                "expire" => info.expire = value.filter(|at| *at > 0),
                _ => {}
            }
        }
        (info != Self::default()).then_some(info)
    }
}

/// A number of bytes or seconds; some programs write a fraction or an exponent.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        (0.0..=1.8e19).contains(&float).then_some(float as u64)
    })
}

impl Info {
    /// Takes an HTTP header or a comment's key; unknown ones are ignored.
    pub fn header(&mut self, name: &str, value: &str) {
        match name.to_ascii_lowercase().as_str() {
            "subscription-userinfo" => self.user = UserInfo::parse(value).or(self.user),
            "profile-update-interval" => {
                let hours = number(value).and_then(|hours| u16::try_from(hours).ok());
                self.interval_hours = hours.filter(|hours| (1..=720).contains(hours));
            }
            "profile-title" => self.title = title(value).or_else(|| self.title.take()),
            "content-disposition" if self.title.is_none() => self.title = file_name(value),
            _ => {}
        }
    }

    /// A comment among the first lines of a body.
    pub(super) fn comment(&mut self, line: &str) {
        let marked = line.strip_prefix("//").or_else(|| line.strip_prefix('#'));
        let text = match (marked, line.strip_prefix("STATUS=")) {
            (Some(text), _) | (None, Some(text)) => text.trim(),
            (None, None) => return,
        };
        match text.split_once(':') {
            Some((name, value)) if !name.contains('=') => self.header(name.trim(), value.trim()),
            _ if text.contains("upload=") => self.header("subscription-userinfo", text),
            _ => {}
        }
    }
}

fn title(value: &str) -> Option<String> {
    let value = value.trim();
    match value.strip_prefix("base64:") {
        Some(encoded) => display_name(&base64_text(encoded)?),
        None => display_name(&String::from_utf8_lossy(&percent_decode(value))),
    }
}

/// `attachment; filename*=UTF-8''name`.
fn file_name(value: &str) -> Option<String> {
    let part = value.split(';').find_map(|part| {
        let (key, name) = part.split_once('=')?;
        (key.trim().eq_ignore_ascii_case("filename*")).then_some(name.trim())
    })?;
    let name = part.splitn(3, '\'').nth(2)?;
    display_name(&String::from_utf8_lossy(&percent_decode(name)))
}
