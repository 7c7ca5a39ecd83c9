//! Who a request comes from: tokens and what they permit.

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// A token, as its hash: comparing hashes tells nothing about length or common beginnings.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    pub(crate) fn new(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    fn is(&self, presented: &[u8]) -> Choice {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        self.0.ct_eq(&presented)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What a listener asks of its clients.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Nothing: whoever reaches it may do everything.
    Anonymous,
    Tokens {
        full: Option<Token>,
        read: Option<Token>,
    },
}

/// Who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Full,
    /// May look, and change nothing.
    Reader,
    /// Showed nothing.
    Unknown,
    /// Showed something wrong.
    Wrong,
}

impl Access {
    /// By the header.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Caller {
        if matches!(self, Self::Anonymous) {
            return Caller::Full;
        }
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), more) = (sent.next(), sent.next()) else {
            return Caller::Unknown;
        };
        let presented = bearer(value.as_bytes());
        let caller = self.shows(presented.unwrap_or_default());
        match more.is_some() || presented.is_none() {
            true => Caller::Wrong,
            false => caller,
        }
    }

    /// Every configured token is compared, whatever the others say.
    pub(super) fn shows(&self, presented: &[u8]) -> Caller {
        let Self::Tokens { full, read } = self else {
            return Caller::Full;
        };
        let is = |token: &Option<Token>| {
            let is = token.as_ref().map(|t| t.is(presented));
            is.is_some_and(bool::from)
        };
        match (is(full), is(read)) {
            (true, _) => Caller::Full,
            (false, true) => Caller::Reader,
            (false, false) => Caller::Wrong,
        }
    }
}

/// The token of `Bearer TOKEN`; the scheme is the same in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| rest.trim_ascii())
}

/// The token of `token=`, with `%XX` read and `+` left as it is. Two of them are none that is
/// right.
pub(super) fn in_query(query: Option<&str>) -> Option<Vec<u8>> {
    let mut sent = query?.split('&').filter_map(|p| p.strip_prefix("token="));
    let token = sent.next()?;
    if sent.next().is_some() {
        return Some(Vec::new());
    }
    let mut read = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escaped = after
            .get(..2)
            .filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        read.push(escaped.unwrap_or(*byte));
        rest = match escaped {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_queries_are_decoded_once_and_plus_is_no_space() {
        for (query, token) in [
            ("token=a%2Bb%3d%26c", "a+b=&c"),
            ("interval=5&token=x+y", "x+y"),
            ("token=100%", "100%"),
            ("token=%2542", "%42"),
            ("token=%4", "%4"),
            ("token=%+4", "%+4"),
            ("token=", ""),
            ("token=a&token=a", ""),
        ] {
            let found = in_query(Some(query));
            assert_eq!(found.as_deref(), Some(token.as_bytes()), "{query}");
        }
        assert_eq!(in_query(Some("atoken=b")), None);
        assert_eq!(in_query(None), None);
    }

    fn caller(access: &Access, value: Option<&str>) -> Caller {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        access.caller(&headers)
    }

    #[test]
    fn tokens_say_who_calls() {
        let access = Access::Tokens {
            full: Some(Token::new("full-token")),
            read: Some(Token::new("read-token")),
        };
        for (value, who) in [
            (Some("Bearer full-token"), Caller::Full),
            (Some("bEARER   full-token "), Caller::Full),
            (Some("Bearer read-token"), Caller::Reader),
            (Some("Bearer full-toke"), Caller::Wrong),
            (Some("Bearer full-token2"), Caller::Wrong),
            (Some("Bearer "), Caller::Wrong),
            (Some("Bearer"), Caller::Wrong),
            (Some("Basic full-token"), Caller::Wrong),
            (Some("full-token"), Caller::Wrong),
            (None, Caller::Unknown),
        ] {
            assert_eq!(caller(&access, value), who, "{value:?}");
        }
        assert_eq!(caller(&Access::Anonymous, Some("Bearer x")), Caller::Full);
        let none = Access::Tokens {
            full: None,
            read: None,
        };
        assert_eq!(caller(&none, Some("Bearer ")), Caller::Wrong);
        let mut twice = HeaderMap::new();
        for value in ["Bearer full-token", "Bearer read-token"] {
            twice.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        assert_eq!(access.caller(&twice), Caller::Wrong);
    }

    #[test]
    fn tokens_are_not_printed() {
        let access = Access::Tokens {
            full: Some(Token::new("canary")),
            read: None,
        };
        let text = format!("{access:?}");
        assert!(text.contains("***") && !text.contains("canary"), "{text}");
    }
}
