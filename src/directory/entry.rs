// SPDX-License-Identifier: Apache-2.0
//! Entries of a directory, and their wire forms. Any process may write to the same folder or key range, so nothing that is
//! read is trusted: sizes are bounded, and an entry must contain the name under which it is stored.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::base::wire::Form;
use crate::base::{Error, Result, Status, ensure, error};

/// The most bytes of an entry. A server of etcd accepts requests of 1.5 MiB by default.
pub const MAX_BYTES: usize = 1 << 20;
/// The most bytes of a presence, which contains a name and two numbers.
pub const MAX_PRESENCE_BYTES: usize = 1 << 10;
pub const MAX_LAYOUTS: usize = 1 << 10;
/// Bytes of the path of a socket, with a NUL.
const MAX_SOCKET: usize = 108;
/// More than the bytes of a share's name.
const MAX_SHARE: usize = 256;
/// The most bytes of an encoded name: a file name has 255, and kvmem adds a suffix.
const MAX_ENCODED: usize = 200;
const VERSION: u16 = 1;

const PRESENCE: Form = Form { magic: b"KVMEMDPR", versions: VERSION..=VERSION, name: "presence of an agent" };
const ENTRY: Form = Form { magic: b"KVMEMDEN", versions: VERSION..=VERSION, name: "directory entry" };

/// What watchers need to know of an entry. It is stored apart from the entry, because every watcher receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    pub name: String,
    /// A random number of the agent that published the entry. A restarted agent has another one. Never 0.
    pub incarnation: u64,
    /// Counts the publications of the incarnation, from 1.
    pub version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedLayout {
    /// Its name, which is unique within the entry.
    pub name: String,
    /// Bytes of `Layout::export`.
    pub descriptor: ByteBuf,
    /// Where processes of the publisher's machine get its memory. Readers that do not know it use NIXL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<PublishedShare>,
}

/// A share of a layout, which a broker publishes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedShare {
    /// The absolute path of the broker's socket.
    pub broker: ByteBuf,
    pub name: String,
    #[serde(with = "serde_bytes")]
    pub token: [u8; 32],
}

impl PublishedShare {
    fn check(&self) -> Result<()> {
        let (path, name) = (&self.broker, &self.name);
        ensure!(
            path.starts_with(b"/") && path.len() < MAX_SOCKET && !path.contains(&0),
            Corrupt,
            "the path of a broker in it is not that of a socket"
        );
        ensure!(
            (1..MAX_SHARE).contains(&name.len()),
            Corrupt,
            "the name of a share in it has {} bytes",
            name.len()
        );
        Ok(())
    }
}

impl fmt::Debug for PublishedShare {
    /// A token is a secret, and is never printed.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("PublishedShare").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The agent that published it.
    pub presence: Presence,
    /// NIXL's metadata of the agent.
    pub metadata: ByteBuf,
    pub layouts: Vec<PublishedLayout>,
}

impl Presence {
    pub fn write(&self) -> Result<Vec<u8>> {
        PRESENCE.write(VERSION, self)
    }

    /// Reads the presence that is stored under a name.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        ensure!(
            bytes.len() <= MAX_PRESENCE_BYTES,
            Corrupt,
            "it has {} bytes, and a presence has at most {MAX_PRESENCE_BYTES}",
            bytes.len()
        );
        let (_, presence): (_, Self) = PRESENCE.read(bytes)?;
        presence.check(name)?;
        Ok(presence)
    }

    fn check(&self, name: &str) -> Result<()> {
        ensure!(self.name == name, Corrupt, "it is the entry of agent '{:.100}'", self.name);
        ensure!(self.incarnation != 0 && self.version != 0, Corrupt, "its incarnation or version is 0");
        Ok(())
    }
}

impl Entry {
    /// Its wire form. Fails if it is larger than a directory accepts.
    pub fn write(&self) -> Result<Vec<u8>> {
        let bytes = ENTRY.write(VERSION, self)?;
        ensure!(
            bytes.len() <= MAX_BYTES,
            OutOfRange,
            "the entry has {} bytes, {} of them metadata, and a directory accepts {MAX_BYTES}; publish fewer layouts, or \
             register fewer and larger regions",
            bytes.len(),
            self.metadata.len()
        );
        Ok(bytes)
    }

    /// Reads the entry that is stored under a name.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        ensure!(
            bytes.len() <= MAX_BYTES,
            Corrupt,
            "it has {} bytes, and an entry has at most {MAX_BYTES}",
            bytes.len()
        );
        let (_, entry): (_, Self) = ENTRY.read(bytes)?;
        entry.presence.check(name)?;
        check_layouts(&entry.layouts).map_err(|error| error.with_status(Status::Corrupt))?;
        Ok(entry)
    }
}

pub fn check_layout_count(count: usize) -> Result<()> {
    ensure!(
        count <= MAX_LAYOUTS,
        InvalidArgument,
        "there are {count} layouts, and an entry has at most {MAX_LAYOUTS}"
    );
    Ok(())
}

/// Checks the number of layouts, and that their names are valid and unique.
pub fn check_layouts(layouts: &[PublishedLayout]) -> Result<()> {
    check_layout_count(layouts.len())?;
    let mut names = std::collections::BTreeSet::new();
    for (index, layout) in layouts.iter().enumerate() {
        check_name(&layout.name, &format!("layouts[{index}]"))?;
        layout.share.as_ref().map_or(Ok(()), PublishedShare::check)?;
        ensure!(names.insert(&layout.name), InvalidArgument, "two layouts have the name '{}'", layout.name);
    }
    Ok(())
}

/// Checks a name. The same names are valid in a folder and in etcd.
pub fn check_name(name: &str, of: &str) -> Result<()> {
    ensure!(!name.is_empty(), InvalidArgument, "the name of {of} is empty");
    ensure!(!name.contains('\0'), InvalidArgument, "the name of {of} contains a NUL byte");
    let length = name.bytes().map(|byte| if is_plain(byte) { 1 } else { 3 }).sum::<usize>();
    ensure!(
        length <= MAX_ENCODED,
        InvalidArgument,
        "the name of {of} has {length} bytes, and a directory accepts {MAX_ENCODED}; every byte other than A-Z a-z 0-9 \
         - _ and . counts as three"
    );
    Ok(())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// A name as a part of a path: other bytes than letters, digits, '-', '_' and '.' are written as %XX, and a dot at the start
/// too.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        if is_plain(byte) && (index > 0 || byte != b'.') {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The name of an encoded name; `None` if no name is encoded so.
pub fn decode(encoded: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded);
    while let Some((first, _)) = rest.as_bytes().split_first() {
        let taken = if *first == b'%' {
            bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            3
        } else {
            bytes.push(*first);
            1
        };
        rest = rest.get(taken..)?;
    }
    let name = String::from_utf8(bytes).ok()?;
    // Only the form that `encode` writes: two paths must not have one name.
    (check_name(&name, "an agent").is_ok() && encode(&name) == encoded).then_some(name)
}

/// The error for an agent without an entry.
pub fn not_found() -> Error {
    error!(NotFound, "there is no such agent: it was not published, was withdrawn, or its process has ended")
}

/// The error for an entry that is not valid.
/// Why an entry is not valid, and what to do.
pub fn invalid(reason: &Error) -> String {
    let remedy = match reason.status() {
        Status::PermissionDenied => "give the user of this process the right to read it",
        Status::VersionMismatch => "publish it and read it with the same version of kvmem",
        Status::Io => "check the file system of the directory",
        _ => "remove it; if its agent exists, kvmem publishes it again",
    };
    format!("{reason}; {remedy}")
}

/// The error of an entry that is not valid, for a reason of [`invalid`].
pub fn refused(name: &str, reason: &str, location: &str) -> Error {
    error!(Corrupt, "the entry of agent '{name}' in {location} is not valid: {reason}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::wire::tests::ensure_all_damage_is_found;

    fn share() -> PublishedShare {
        PublishedShare { broker: ByteBuf::from(*b"/run/broker"), name: "s".to_string(), token: [7; 32] }
    }

    fn entry() -> Entry {
        let layouts = ["keys", "values"].map(|name| PublishedLayout {
            name: name.to_string(),
            descriptor: ByteBuf::from(name.as_bytes()),
            share: (name == "keys").then(share),
        });
        let presence = Presence { name: "node/1".to_string(), incarnation: 7, version: 3 };
        Entry { presence, metadata: ByteBuf::from([1, 2, 3]), layouts: layouts.into() }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_damage_is_found() {
        let entry = entry();
        let bytes = entry.write().unwrap();
        assert_eq!(Entry::read("node/1", &bytes).unwrap(), entry);
        ensure_all_damage_is_found(&bytes, |bytes| Entry::read("node/1", bytes));
        let bytes = entry.presence.write().unwrap();
        assert_eq!(Presence::read("node/1", &bytes).unwrap(), entry.presence);
        ensure_all_damage_is_found(&bytes, |bytes| Presence::read("node/1", bytes));
    }

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(format!("{:?}", share()), "PublishedShare { name: \"s\", .. }");
    }

    #[test]
    fn an_entry_of_another_name_or_with_invalid_fields_is_corrupt() {
        let status = |entry: &Entry| {
            let bytes = ENTRY.write(VERSION, entry).unwrap();
            Entry::read("node/1", &bytes).err().map(|error| error.status())
        };
        let mut other = entry();
        other.presence.name = "node/2".to_string();
        assert_eq!(status(&other), Some(Status::Corrupt));
        let mut other = entry();
        other.presence.incarnation = 0;
        assert_eq!(status(&other), Some(Status::Corrupt));
        let mut other = entry();
        other.layouts[1].name = "keys".to_string();
        assert_eq!(status(&other), Some(Status::Corrupt));
        let mut other = entry();
        other.layouts[0].name.clear();
        assert_eq!(status(&other), Some(Status::Corrupt));
        for (path, name) in
            [("run/broker", "s"), ("/a\0b", "s"), (&"/".repeat(108), "s"), ("/run/broker", "")]
        {
            let mut other = entry();
            let share = PublishedShare { broker: ByteBuf::from(path), name: name.to_string(), ..share() };
            other.layouts[1].share = Some(share);
            assert_eq!(status(&other), Some(Status::Corrupt), "{path} {name}");
        }
        let mut other = entry();
        other.layouts = (0..=MAX_LAYOUTS)
            .map(|index| PublishedLayout { name: index.to_string(), descriptor: ByteBuf::new(), share: None })
            .collect();
        assert_eq!(status(&other), Some(Status::Corrupt));
    }

    #[test]
    fn an_entry_that_is_too_large_is_neither_written_nor_read() {
        let mut large = entry();
        large.metadata = ByteBuf::from(vec![0; MAX_BYTES]);
        large.write().unwrap_err().assert_is(Status::OutOfRange, "1048576 of them metadata");
        let bytes = ENTRY.write(VERSION, &large).unwrap();
        assert_eq!(Entry::read("node/1", &bytes).unwrap_err().status(), Status::Corrupt);
    }

    #[test]
    fn names_are_encoded_for_paths() {
        for (name, encoded) in
            [("a-B_9.x", "a-B_9.x"), ("..", "%2E."), ("a/b", "a%2Fb"), ("é", "%C3%A9"), ("%41", "%2541")]
        {
            assert_eq!(encode(name), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(name));
        }
        for encoded in ["", "%4", "%", "%41", "%zz", "%FF", "a/b", "%c3%a9", ".x", "%00", "%+1", "é%"] {
            assert_eq!(decode(encoded), None, "{encoded}");
        }
        assert!(check_name(&"x".repeat(200), "an agent").is_ok());
        for name in ["", "a\0b", &"x".repeat(201), &"é".repeat(34)] {
            assert_eq!(check_name(name, "an agent").unwrap_err().status(), Status::InvalidArgument);
        }
    }

    proptest! {
        #[test]
        fn every_valid_name_has_one_encoding(name in "\\PC{0,70}") {
            if check_name(&name, "an agent").is_ok() {
                let encoded = encode(&name);
                prop_assert!(encoded.len() <= MAX_ENCODED + 2);
                prop_assert_eq!(decode(&encoded), Some(name));
            }
        }

        #[test]
        fn any_text_is_decoded_to_at_most_its_own_name(text in "\\PC{0,70}") {
            if let Some(name) = decode(&text) {
                prop_assert_eq!(encode(&name), text);
            }
        }
    }
}
