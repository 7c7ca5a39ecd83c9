//! The HTTP/1.1 origin: `/whoami`, `/bytes/N`, anything else is 404. Keeps connections alive.

use std::io::Result;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MAX_HEAD: usize = 16 << 10;

/// Serves requests until the client closes.
pub(super) async fn serve(mut stream: TcpStream, peer: SocketAddr) -> Result<()> {
    while let Some(head) = read_head(&mut stream).await? {
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let close = head.to_ascii_lowercase().contains("\r\nconnection: close");
        answer(&mut stream, &path, peer, close).await?;
        if close {
            return stream.shutdown().await;
        }
    }
    Ok(())
}

/// Reads up to the empty line; `None` at the end of the connection.
pub(super) async fn read_head(stream: &mut TcpStream) -> Result<Option<String>> {
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 || head.len() > MAX_HEAD {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

async fn answer(stream: &mut TcpStream, path: &str, peer: SocketAddr, close: bool) -> Result<()> {
    let tail = if close {
        "connection: close\r\n\r\n"
    } else {
        "\r\n"
    };
    let size = path
        .strip_prefix("/bytes/")
        .and_then(|n| n.parse::<u64>().ok());
    if let Some(mut left) = size {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {left}\r\n{tail}");
        stream.write_all(head.as_bytes()).await?;
        let block = [b'x'; 16 << 10];
        while left > 0 {
            let now = left.min(block.len() as u64);
            stream.write_all(&block[..now as usize]).await?;
            left -= now;
        }
        return Ok(());
    }
    let (status, body) = match path {
        "/whoami" => ("200 OK", format!("{peer}\n")),
        _ => ("404 Not Found", "no such page\n".to_owned()),
    };
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{tail}{body}");
    stream.write_all(text.as_bytes()).await
}
