//! Hellos for tests.

/// A ClientHello message: a server name, the ECH extension, and `pad` bytes of padding before
/// the name, as large key shares would be.
pub fn client_hello(name: Option<&str>, ech: bool, pad: usize) -> Vec<u8> {
    let mut extensions = Vec::new();
    if pad > 0 {
        extension(&mut extensions, 21, &vec![0; pad]);
    }
    if let Some(name) = name {
        let mut list = vec![0];
        vector(&mut list, 2, name.as_bytes());
        let mut data = Vec::new();
        vector(&mut data, 2, &list);
        extension(&mut extensions, 0, &data);
    }
    if ech {
        extension(&mut extensions, 0xfe0d, &[0; 40]);
    }
    extension(&mut extensions, 43, &[2, 3, 4]);
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    vector(&mut body, 1, &[9; 32]);
    vector(&mut body, 2, &[0x13, 1, 0x13, 2]);
    vector(&mut body, 1, &[0]);
    vector(&mut body, 2, &extensions);
    let mut message = vec![1];
    vector(&mut message, 3, &body);
    message
}

/// A message in records of at most `size` bytes.
pub fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for part in message.chunks(size.max(1)) {
        out.extend_from_slice(&[22, 3, 1]);
        vector(&mut out, 2, part);
    }
    out
}

fn extension(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    vector(out, 2, data);
}

/// Appends a length of `n` bytes and the data.
fn vector(out: &mut Vec<u8>, n: usize, data: &[u8]) {
    out.extend_from_slice(&data.len().to_be_bytes()[8 - n..]);
    out.extend_from_slice(data);
}
