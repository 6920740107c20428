// SPDX-License-Identifier: Apache-2.0
//! The common part of all wire forms: a header with the form, its version and its length, a checksum, and fields in CBOR.
//! Reading returns the fields or an error for any bytes.
//!
//! The header is 20 bytes: magic (8), version (2), flags (2), bytes of the fields (4), CRC-32C of all before it and of
//! the fields (4); little-endian. Every version starts with it, so that damage can be distinguished from a newer version.

use std::ops::RangeInclusive;

use minicbor_serde::{Deserializer, Serializer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::error::{Error, Result, ensure, error, fail};

const HEADER: usize = 20;

pub struct Form {
    /// The first bytes of the form.
    pub magic: &'static [u8; 8],
    pub versions: RangeInclusive<u16>,
    /// Its name, for messages.
    pub name: &'static str,
}

impl Form {
    /// The bytes of some fields in a version.
    pub fn write<T: Serialize>(&self, version: u16, fields: &T) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.append(version, fields, &mut bytes)?;
        Ok(bytes)
    }

    /// Adds the bytes of some fields in a version to `bytes`.
    pub fn append<T: Serialize>(&self, version: u16, fields: &T, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; HEADER]);
        fields.serialize(&mut Serializer::new(&mut *bytes)).map_err(|error| self.not_written(&error))?;
        let (header, body) = bytes[start..].split_at_mut(HEADER);
        self.fill_header(version, header, body)
    }

    #[cold]
    fn not_written(&self, error: &dyn std::fmt::Display) -> Error {
        error!(OutOfMemory, "write a {}: {error}", self.name)
    }

    /// The version and the fields of some bytes. The caller must check the values of the fields.
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<(u16, T)> {
        let (version, body) = self.unframe(bytes)?;
        let fields = read_fields(body).map_err(|damage| self.damaged(&damage))?;
        Ok((version, fields))
    }

    #[cold]
    fn damaged(&self, damage: &str) -> Error {
        error!(Corrupt, "the {}'s fields are damaged: {damage}", self.name)
    }

    /// The version of some bytes, which this library reads.
    pub fn version(&self, bytes: &[u8]) -> Result<u16> {
        self.unframe(bytes).map(|(version, _)| version)
    }

    #[inline(never)] // it is the same for all fields
    fn fill_header(&self, version: u16, header: &mut [u8], body: &[u8]) -> Result<()> {
        let Ok(length) = u32::try_from(body.len()) else {
            fail!(OutOfRange, "a {} of {} bytes is too large", self.name, body.len());
        };
        header[..8].copy_from_slice(self.magic);
        header[8..10].copy_from_slice(&version.to_le_bytes());
        header[12..16].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..16]), body);
        header[16..].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    /// Puts the header before fields, which may be anything.
    #[cfg(test)]
    pub fn frame(&self, version: u16, body: &[u8]) -> Result<Vec<u8>> {
        let mut header = [0; HEADER];
        self.fill_header(version, &mut header, body)?;
        Ok([&header[..], body].concat())
    }

    fn unframe<'a>(&self, bytes: &'a [u8]) -> Result<(u16, &'a [u8])> {
        let name = self.name;
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            fail!(Corrupt, "a {name} has at least {HEADER} bytes, this one has {}", bytes.len());
        };
        ensure!(header.starts_with(self.magic), Corrupt, "the bytes are not a {name}");
        let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
        ensure!(
            body.len() == length,
            Corrupt,
            "the {name} announces {length} bytes, and {} follow",
            body.len()
        );
        let stored = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        let actual = crc32c::crc32c_append(crc32c::crc32c(&header[..16]), body);
        ensure!(
            stored == actual,
            Corrupt,
            "the checksum of the {name} is {actual:#x}, and it contains {stored:#x}"
        );
        let version = u16::from_le_bytes([header[8], header[9]]);
        ensure!(
            self.versions.contains(&version) && header[10..12] == [0, 0],
            VersionMismatch,
            "the {name} has version {version}, this library reads {}",
            self.readable()
        );
        Ok((version, body))
    }

    /// The versions that this library reads, as text.
    fn readable(&self) -> String {
        match (self.versions.start(), self.versions.end()) {
            (oldest, newest) if oldest == newest => format!("version {newest}"),
            (oldest, newest) => format!("versions {oldest} to {newest}"),
        }
    }
}

/// The fields in some bytes, which contain nothing else. Fails with the reason.
pub fn read_fields<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    let mut reader = Deserializer::new(bytes);
    let fields = T::deserialize(&mut reader).map_err(|damage| reason(&damage))?;
    match bytes.len() - reader.decoder().position() {
        0 => Ok(fields),
        left => Err(format!("{left} bytes follow them")),
    }
}

#[cold]
fn reason(damage: &dyn std::fmt::Display) -> String {
    let text = damage.to_string();
    text.strip_prefix("decode error")
        .map_or_else(|| text.clone(), |rest| rest.trim_start_matches([':', ' ']).into())
}

#[cfg(test)]
pub(crate) mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::base::Status;

    const FORM: Form = Form { magic: b"KVMEMTST", versions: 1..=2, name: "test form" };

    /// The same bytes as another version would have them.
    pub fn of_version(bytes: &[u8], version: u16) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[HEADER..]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Every truncation, extension and flipped bit must be found out.
    pub fn ensure_all_damage_is_found<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Result<T>) {
        let status = |bytes: &[u8]| read(bytes).err().map(|error| error.status());
        for length in 0..bytes.len() {
            assert_eq!(status(&bytes[..length]), Some(Status::Corrupt), "cut at {length}");
        }
        assert_eq!(status(&[bytes, &[0]].concat()), Some(Status::Corrupt));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(status(&flipped), Some(Status::Corrupt), "bit {bit}");
        }
    }

    #[test]
    fn only_bytes_that_were_written_are_read() {
        let fields = (7u32, "text".to_string());
        let bytes = FORM.write(1, &fields).unwrap();
        assert_eq!(FORM.read::<(u32, String)>(&bytes).unwrap(), (1, fields));
        ensure_all_damage_is_found(&bytes, |bytes| FORM.read::<(u32, String)>(bytes));
    }

    #[test]
    fn the_version_that_was_read_is_returned() {
        let bytes = FORM.write(2, &1u8).unwrap();
        assert_eq!(FORM.read::<u8>(&bytes).unwrap(), (2, 1));
    }

    #[test]
    fn a_newer_version_is_reported() {
        let bytes = of_version(&FORM.write(1, &1u8).unwrap(), 3);
        let error = FORM.read::<u8>(&bytes).unwrap_err();
        assert_eq!(error.status(), Status::VersionMismatch);
        assert!(error.message().contains("version 3") && error.message().contains("1 to 2"), "{error}");
    }

    #[test]
    fn fields_of_other_types_fail() {
        let bytes = FORM.write(1, &"text").unwrap();
        assert_eq!(FORM.read::<u32>(&bytes).unwrap_err().status(), Status::Corrupt);
        let more = FORM.frame(1, &[0x01, 0x02]).unwrap();
        assert_eq!(FORM.read::<u8>(&more).unwrap_err().status(), Status::Corrupt);
    }

    /// A hostile process can compute the checksum, too.
    #[test]
    fn fields_that_announce_too_much_or_are_damaged_fail_with_the_reason() {
        type Fields = (String, Vec<u64>, IgnoredAny);
        let reason = |fields: &[u8]| read_fields::<Fields>(fields).unwrap_err();
        let most = [0xff; 8];
        let list = [&[0x83, 0x60, 0x9b][..], &most, &[1]].concat();
        let text = [&[0x83, 0x7b][..], &most, b"a"].concat();
        assert_eq!([reason(&list), reason(&text)], ["end of input bytes"; 2]);
        assert_eq!(reason(&[0x83, 0x60, 0x80, 0, 0]), "1 bytes follow them");
        for (damaged, part) in [
            (&[0x83, 0x60, 0xfe][..], "at position 2"),
            (&[0x83, 0x61, 0xff, 0x80, 0], "utf-8"),
            (&[0x83, 0x01, 0x80, 0], "expected text"),
            (&[0x82, 0x60, 0x80], "invalid length"),
        ] {
            assert!(reason(damaged).contains(part), "{}", reason(damaged));
        }
    }

    /// Ignored items are skipped without recursion.
    #[test]
    fn fields_that_are_not_known_may_contain_each_other_in_any_number() {
        let nested = |item: u8| [vec![0x81; 1], vec![item; 1 << 20]].concat();
        assert!(read_fields::<(IgnoredAny,)>(&[nested(0x81), vec![0]].concat()).is_ok());
        assert!(read_fields::<(IgnoredAny,)>(&[nested(0x9f), vec![0xff; 1 << 20]].concat()).is_ok());
    }
}
