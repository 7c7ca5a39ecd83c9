//! Messages with a length before them (RFC 1035, RFC 7766).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes from which a first message can be told from another protocol: the length and the
/// header.
const HEAD: usize = 14;

/// Takes messages out of a stream. Every call can be given up and made again.
#[derive(Debug)]
pub(super) struct Frames<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(reader: R, buffer: Vec<u8>) -> Self {
        Self { reader, buffer }
    }

    /// The next message with its length; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(len) = self.buffer.first_chunk::<2>() {
                let whole = 2 + usize::from(u16::from_be_bytes(*len));
                if self.buffer.len() >= whole {
                    let rest = self.buffer.split_off(whole);
                    return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
                }
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for the first byte, or the end.
    pub(super) async fn filled(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.more().await?;
        }
        Ok(())
    }

    /// Whether the stream begins like a query; fewer bytes than a header holds do not.
    pub(super) async fn begins_with_query(&mut self) -> io::Result<bool> {
        while self.buffer.len() < HEAD && self.more().await? {}
        Ok(like_query(&self.buffer))
    }

    /// What was read and not given out, and where it came from.
    pub(super) fn into_parts(self) -> (R, Vec<u8>) {
        (self.reader, self.buffer)
    }

    async fn more(&mut self) -> io::Result<bool> {
        // A buffer that once held a big message is not kept for small ones.
        if self.buffer.is_empty() && self.buffer.capacity() > 4096 {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(512);
        Ok(self.reader.read_buf(&mut self.buffer).await? > 0)
    }
}

fn like_query(bytes: &[u8]) -> bool {
    let Some([_, _, _, _, flags, _, 0, 1, 0, 0, _, _, _, _]) = bytes.first_chunk::<HEAD>() else {
        return false;
    };
    // No response; any operation.
    flags & 0x80 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_out_whole_however_they_arrive() {
        let bytes = [&[0, 3][..], b"abc", &[0, 0], &[0, 1], b"x", &[0, 9], b"cut"].concat();
        for portion in 1..bytes.len() {
            let mut builder = Vec::new();
            for part in bytes.chunks(portion) {
                builder.push(part.to_vec());
            }
            let (mut to, from) = tokio::io::duplex(64);
            let writer = tokio::spawn(async move {
                for part in builder {
                    tokio::io::AsyncWriteExt::write_all(&mut to, &part)
                        .await
                        .unwrap();
                }
            });
            let mut frames = Frames::new(from, Vec::new());
            let mut got = Vec::new();
            while let Some(frame) = frames.next().await.unwrap() {
                got.push(frame[2..].to_vec());
            }
            writer.await.unwrap();
            assert_eq!(got, [&b"abc"[..], b"", b"x"], "{portion}");
        }
    }

    #[test]
    fn other_protocols_are_told_from_queries() {
        assert!(like_query(
            b"\0\x20\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
        ));
        assert!(!like_query(
            b"\0\x20\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00"
        ));
        assert!(!like_query(b"SSH-2.0-OpenSSH_9.9\r\n"));
        assert!(!like_query(b"GET / HTTP/1.1\r\n"));
        assert!(!like_query(
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abc"
        ));
        assert!(!like_query(b""));
    }
}
