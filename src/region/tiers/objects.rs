// SPDX-License-Identifier: Apache-2.0
//! Objects of an object store, which NIXL reads and writes. They need not exist until they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, Result, Status, ensure, error};
use crate::cuda::deferred;
use crate::nixl::{DescriptorEntry, Descriptors, MemoryType, Span};
use crate::region::available_memory::ensure_available;
use crate::region::{AddressSpace, Backing, EqualPieces, MemoryRange, Properties, Tier};

#[derive(Clone, Debug)]
pub struct ObjectConfig {
    /// What all keys begin with.
    pub prefix: String,
    /// The maximum size of an object in bytes.
    pub object_size: u64,
    pub count: u64,
}

/// Digits of an object's number in its key. A fixed number of them keeps the keys of all prefixes apart, and in order.
const DIGITS: usize = 10;
/// The maximum length of a key in S3.
const MAX_KEY_BYTES: usize = 1024;
/// About what kvmem and NIXL keep of a registered object, besides its key.
const REGISTERED_BYTES: u64 = 512;
const KEY_COPIES: u64 = 4;
/// NIXL numbers descriptors by `int`.
const MAX_OBJECTS: u64 = i32::MAX as u64;

/// Objects of equal size, one behind the other in the addresses of their region, which start at 0.
pub struct Objects {
    prefix: Arc<str>,
    object_size: u64,
    count: u64,
    size: u64,
    first_id: u64,
}

impl Objects {
    /// Checks the configuration, and chooses the device ids by which requests address the objects.
    pub fn new(config: ObjectConfig) -> Result<Self> {
        let ObjectConfig { prefix, object_size, count } = config;
        ensure!(!prefix.is_empty(), InvalidArgument, "key_prefix is empty");
        ensure!(
            prefix.len() + DIGITS <= MAX_KEY_BYTES,
            InvalidArgument,
            "key_prefix has {} bytes; keys have at most {MAX_KEY_BYTES}, of which the number of the object takes {DIGITS}",
            prefix.len()
        );
        ensure_kept(&prefix)?;
        ensure!(
            object_size > 0,
            InvalidArgument,
            "object_size is 0 bytes; it is usually the size of a block"
        );
        ensure!(
            (1..=MAX_OBJECTS).contains(&count),
            InvalidArgument,
            "count is {count} objects; it must be 1 to {MAX_OBJECTS}"
        );
        let size = object_size.checked_mul(count).filter(|size| *size <= i64::MAX as u64);
        let too_large =
            || error!(InvalidArgument, "{count} objects of {object_size} bytes are more than 2^63 - 1 bytes");
        let prefix = prefix.into();
        Ok(Self { prefix, object_size, count, size: size.ok_or_else(too_large)?, first_id: new_ids(count) })
    }

    /// What all keys begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Bytes of the addresses of an object.
    pub fn object_size(&self) -> u64 {
        self.object_size
    }

    pub fn key(&self, index: u64) -> String {
        format!("{}{index:0DIGITS$}", self.prefix)
    }

    /// All objects with their keys, for registration.
    fn descriptors(&self) -> Result<Descriptors> {
        let entry = |index| DescriptorEntry {
            address: 0,
            size: self.object_size,
            device_id: self.first_id + index,
            metadata: self.key(index).into_bytes(),
            ..DescriptorEntry::default()
        };
        let mut entries = self.empty_list()?;
        entries.extend((0..self.count).map(entry));
        Descriptors::new(MemoryType::Object, entries)
    }

    /// An empty list with memory for all of them. Fails if there is too little for their registration: that would end the
    /// process.
    fn empty_list(&self) -> Result<Vec<DescriptorEntry>> {
        let key_size = (self.prefix.len() + DIGITS) as u64;
        let doing = || format!("list {} objects, each of which an agent keeps with its key", self.count);
        let size = self.count * (REGISTERED_BYTES + KEY_COPIES * key_size);
        deferred::allocate(None, || ensure_available(size, None)).map_err(|error| error.context(doing()))?;
        let mut entries = Vec::new();
        let reserved = entries.try_reserve_exact(self.count as usize);
        reserved.map_err(|error| Error::new(Status::OutOfMemory, error.to_string()).context(doing()))?;
        Ok(entries)
    }
}

impl Backing for Objects {
    /// The objects are one behind the other.
    fn range(&self) -> MemoryRange {
        MemoryRange { tier: Tier::Object, address: 0, size: self.size }
    }

    fn properties(&self) -> Properties {
        Properties { page_size: Some(self.object_size), ..Properties::default() }
    }

    fn address_space(&self) -> AddressSpace {
        AddressSpace::Objects(self.prefix.clone(), self.object_size)
    }

    /// The device id of the first object. The others have the following ones.
    fn device_id(&self) -> u64 {
        self.first_id
    }

    /// The address is an offset in the object, which the device id stands for.
    fn span(&self, address: u64, size: u64) -> Span {
        debug_assert!(size <= self.bytes_in_piece(address), "a span is within an object");
        let index = address / self.object_size;
        Span { address: address % self.object_size, size, device_id: self.first_id + index }
    }

    fn storage_list(&self) -> Option<Result<Descriptors>> {
        Some(self.descriptors())
    }

    fn is_registered_whole(&self) -> bool {
        true
    }

    /// The bytes to the end of the object.
    fn bytes_in_piece(&self, address: u64) -> u64 {
        EqualPieces { start: 0, size: self.object_size }.left(address)
    }
}

/// Fails if the keys in the store would be others. They are paths of URLs, from which the client of NIXL's plugin removes
/// segments without a name: then "a//b" and "a/b" would be one object.
fn ensure_kept(prefix: &str) -> Result<()> {
    let is_lost = |segment: &&str| matches!(*segment, "" | "." | "..");
    // The last segment has the number of the object, too.
    let (folders, _) = prefix.rsplit_once('/').unwrap_or_default();
    let lost = folders.split('/').find(is_lost).filter(|_| prefix.contains('/'));
    ensure!(
        lost.is_none(),
        InvalidArgument,
        "key_prefix '{}' has the segment '{}' before a slash, which does not reach the store; each must have \
         a name other than '.' and '..'",
        prefix.escape_debug(),
        lost.unwrap_or_default()
    );
    ensure!(
        !prefix.contains(char::is_control),
        InvalidArgument,
        "key_prefix '{}' has a control character, which stores refuse",
        prefix.escape_debug()
    );
    Ok(())
}

/// Device ids that no other object of this process has. NIXL finds the key of an object by its device id alone, so they are
/// far from the numbers that a caller would choose for raw descriptors.
fn new_ids(count: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 48);
    NEXT.fetch_add(count, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(prefix: &str, object_size: u64, count: u64) -> Result<Objects> {
        Objects::new(ObjectConfig { prefix: prefix.to_string(), object_size, count })
    }

    #[test]
    fn an_address_is_an_object_and_an_offset_in_it() {
        let objects = objects("model/", 100, 3).unwrap();
        let first = objects.device_id();
        assert_eq!((objects.size(), objects.bytes_in_piece(0), objects.bytes_in_piece(199)), (300, 100, 1));
        assert_eq!(objects.span(0, 100), Span { address: 0, size: 100, device_id: first });
        assert_eq!(objects.span(250, 50), Span { address: 50, size: 50, device_id: first + 2 });
    }

    #[test]
    fn each_object_is_registered_with_its_key() {
        let list = objects("a", 100, 12).unwrap().descriptors().unwrap();
        let keys: Vec<_> = list.entries().iter().map(|entry| entry.metadata.clone()).collect();
        assert_eq!(keys.len(), 12);
        assert_eq!((&keys[0][..], &keys[11][..]), (&b"a0000000000"[..], &b"a0000000011"[..]));
        assert!(list.entries().iter().all(|entry| (entry.address, entry.size) == (0, 100)));
    }

    #[test]
    fn no_two_objects_of_a_process_have_one_device_id() {
        let (one, other) = (objects("a", 1, 5).unwrap(), objects("a", 1, 5).unwrap());
        assert!(one.device_id() + 5 <= other.device_id() || other.device_id() + 5 <= one.device_id());
    }

    #[test]
    fn keys_that_the_store_gets_unchanged_are_accepted() {
        for prefix in ["a", "a/", "a/b/c", ".", "..", "a/.", ".a/b../", "ä ?&#%2F\\/"] {
            assert!(objects(prefix, 1, 1).is_ok(), "{prefix}");
        }
    }

    #[test]
    fn objects_that_cannot_be_are_refused() {
        let long = "x".repeat(MAX_KEY_BYTES);
        let cases = [
            ("", 1, 1),
            (&*long, 1, 1),
            ("/a", 1, 1),
            ("a//b/", 1, 1),
            ("a//", 1, 1),
            ("./a", 1, 1),
            ("a/../b", 1, 1),
            ("/", 1, 1),
            ("a\n", 1, 1),
            ("a", 0, 1),
            ("a", 1, 0),
            ("a", 1, 1 << 31),
            ("a", 1 << 40, 1 << 30),
        ];
        for (prefix, object_size, count) in cases {
            objects(prefix, object_size, count).err().unwrap().assert_is(Status::InvalidArgument, "");
        }
    }
}
