//! Removes DWARF from the object: the loader needs BTF only, and the daemon embeds the bytes.
//!
//! Section numbers stay, so nothing that refers to them changes: a removed section becomes an
//! inactive header of no size, and the remaining ones move together.

use anyhow::{Context as _, Result, ensure};

const HEADER: usize = 64;
const SECTION: usize = 64;
const SHT_NULL: u32 = 0;
const SHT_NOBITS: u32 = 8;

/// Fields of a section header, by offset.
const NAME: usize = 0;
const TYPE: usize = 4;
const OFFSET: usize = 24;
const SIZE: usize = 32;
const ALIGN: usize = 48;

/// The object without `.debug*` and `.rel.debug*`.
pub(crate) fn strip_debug(object: &[u8]) -> Result<Vec<u8>> {
    let table = Table::read(object)?;
    let mut out = object.get(..HEADER).context("short file")?.to_vec();
    let mut headers = Vec::new();
    for mut header in table.headers.iter().cloned() {
        let name = table.name(object, &header)?;
        if name.starts_with(".debug") || name.starts_with(".rel.debug") {
            header = vec![0; SECTION];
        } else if u32_at(&header, TYPE)? != SHT_NULL && u32_at(&header, TYPE)? != SHT_NOBITS {
            let align = usize::try_from(u64_at(&header, ALIGN)?)?.max(1);
            out.resize(out.len().next_multiple_of(align), 0);
            let data = contents(object, &header)?;
            let at = out.len() as u64;
            header[OFFSET..OFFSET + 8].copy_from_slice(&at.to_le_bytes());
            out.extend_from_slice(data);
        }
        headers.push(header);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let at = out.len() as u64;
    out[40..48].copy_from_slice(&at.to_le_bytes());
    out.extend(headers.concat());
    Ok(out)
}

/// Names of all active sections.
pub(crate) fn section_names(object: &[u8]) -> Result<Vec<String>> {
    let table = Table::read(object)?;
    let mut names = Vec::new();
    for header in &table.headers {
        let name = table.name(object, header)?;
        if !name.is_empty() {
            names.push(name);
        }
    }
    Ok(names)
}

struct Table {
    headers: Vec<Vec<u8>>,
    names: usize,
}

impl Table {
    fn read(object: &[u8]) -> Result<Self> {
        ensure!(
            object.starts_with(b"\x7fELF\x02\x01"),
            "not a little-endian 64-bit ELF file"
        );
        let at = usize::try_from(u64_at(object, 40)?)?;
        let count = usize::from(u16_at(object, 60)?);
        let names = usize::from(u16_at(object, 62)?);
        let table = object
            .get(at..at + count * SECTION)
            .context("section table outside the file")?;
        let headers: Vec<_> = table.chunks(SECTION).map(<[u8]>::to_vec).collect();
        ensure!(names < headers.len(), "no section names");
        Ok(Self { headers, names })
    }

    fn name(&self, object: &[u8], header: &[u8]) -> Result<String> {
        let strings = contents(object, &self.headers[self.names])?;
        let at = u32_at(header, NAME)? as usize;
        let tail = strings
            .get(at..)
            .context("section name outside its table")?;
        let end = tail.iter().position(|b| *b == 0).unwrap_or(tail.len());
        Ok(String::from_utf8_lossy(&tail[..end]).into_owned())
    }
}

fn contents<'a>(object: &'a [u8], header: &[u8]) -> Result<&'a [u8]> {
    let at = usize::try_from(u64_at(header, OFFSET)?)?;
    let size = usize::try_from(u64_at(header, SIZE)?)?;
    object
        .get(at..at + size)
        .context("section outside the file")
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let part = bytes.get(at..at + N).context("short header")?;
    Ok(part.try_into()?)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(field(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(field(bytes, at)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(field(bytes, at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object with `.text`, `.debug_info` and a string table.
    fn object() -> Vec<u8> {
        let strings = b"\0.text\0.debug_info\0.strtab\0";
        let parts: [(u32, u32, &[u8]); 4] = [
            (0, 0, b""),
            (1, 1, b"code"),
            (7, 1, b"a long story"),
            (19, 3, strings),
        ];
        let mut out = vec![0; HEADER];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut table = Vec::new();
        for (name, kind, data) in parts {
            let mut h = vec![0; SECTION];
            h[..4].copy_from_slice(&name.to_le_bytes());
            h[4..8].copy_from_slice(&kind.to_le_bytes());
            h[OFFSET..OFFSET + 8].copy_from_slice(&(out.len() as u64).to_le_bytes());
            h[SIZE..SIZE + 8].copy_from_slice(&(data.len() as u64).to_le_bytes());
            h[ALIGN] = 1;
            out.extend(data);
            table.extend(h);
        }
        let at = out.len() as u64;
        out[40..48].copy_from_slice(&at.to_le_bytes());
        out[60] = 4;
        out[62] = 3;
        out.extend(table);
        out
    }

    #[test]
    fn debug_sections_go_and_others_keep_number_and_bytes() {
        let stripped = strip_debug(&object()).unwrap();
        assert_eq!(section_names(&stripped).unwrap(), [".text", ".strtab"]);
        let table = Table::read(&stripped).unwrap();
        assert_eq!(contents(&stripped, &table.headers[1]).unwrap(), b"code");
        assert!(!stripped.windows(4).any(|w| w == b"long"));
    }

    #[test]
    fn garbage_is_refused() {
        assert!(strip_debug(b"not an object").is_err());
        let mut cut = object();
        cut.truncate(100);
        assert!(strip_debug(&cut).is_err());
    }
}
