// SPDX-License-Identifier: Apache-2.0
//! What NIXL's metadata says about its agent. NIXL returns one status for all failures to load it, so kvmem compares it with what
//! is loaded.

use std::collections::BTreeMap;

/// How each backend of an agent is reached, by plugin. It does not change while the agent lives, and no other agent has the same.
pub(super) type Connections = BTreeMap<Vec<u8>, Vec<u8>>;

const FORM: &[u8] = b"nixlSerDes|";
const AGENT: &[u8] = b"Agent";

/// The beginning of an agent's metadata.
pub(super) struct MetadataHead {
    pub agent: String,
    /// Empty in partial metadata of memory.
    pub connections: Connections,
}

impl MetadataHead {
    /// Reads the form of NIXL 1.5. `None` for other bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(FORM)?;
        let agent = String::from_utf8(field(&mut rest, AGENT)?.to_vec()).ok()?;
        let count = u64::from_le_bytes(field(&mut rest, b"Conns")?.try_into().ok()?);
        let mut connections = Connections::new();
        for _ in 0..count {
            let plugin = field(&mut rest, b"t")?.to_vec();
            connections.insert(plugin, field(&mut rest, b"c")?.to_vec());
        }
        Some(Self { agent, connections })
    }
}

/// Whether two agents of one name are different agents: a backend that both have is reached differently.
pub(super) fn are_different(one: &Connections, other: &Connections) -> bool {
    one.iter().any(|(plugin, way)| other.get(plugin).is_some_and(|other| other != way))
}

/// The same metadata with another name of its agent.
pub(super) fn renamed(metadata: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = metadata.strip_prefix(FORM)?;
    field(&mut rest, AGENT)?;
    Some([FORM, AGENT, &(name.len() as u64).to_le_bytes(), name.as_bytes(), b"|", rest].concat())
}

/// A field of NIXL's serialization: its tag, the length of its value as eight bytes, the value, and a bar.
fn field<'a>(rest: &mut &'a [u8], tag: &[u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.strip_prefix(tag)?.split_first_chunk()?;
    let (value, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *rest = after.strip_prefix(b"|")?;
    Some(value)
}

/// The memory type of a list in metadata that NIXL does not have: NIXL 1.5.1 uses it as an index without a check.
pub(super) fn impossible_memory_type(metadata: &[u8]) -> Option<u32> {
    /// What precedes the four bytes of the type.
    const LIST: &[u8] = b"nixlSDList|t\x04\0\0\0\0\0\0\0";
    /// NIXL's number of files, the last of its types.
    const LAST: u32 = 4;
    let types = metadata.windows(LIST.len() + size_of::<u32>()).filter_map(|bytes| bytes.strip_prefix(LIST));
    types.filter_map(|bytes| bytes.try_into().ok().map(u32::from_le_bytes)).find(|known| *known > LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(agent: &str, connections: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = b"nixlSerDes|".to_vec();
        let mut add = |tag: &str, value: &[u8]| {
            bytes.extend([tag.as_bytes(), &(value.len() as u64).to_le_bytes(), value, b"|"].concat());
        };
        add("Agent", agent.as_bytes());
        add("Conns", &(connections.len() as u64).to_le_bytes());
        for (plugin, way) in connections {
            add("t", plugin.as_bytes());
            add("c", way.as_bytes());
        }
        add("", b"MemSection");
        bytes
    }

    #[test]
    fn metadata_is_renamed() {
        let of = |name: &str| metadata(name, &[("UCX", "address")]);
        for (before, after) in [("prefill", "prefill #7"), ("e", ""), ("", "x")] {
            assert_eq!(renamed(&of(before), after), Some(of(after)));
        }
        assert_eq!(renamed(b"nixlSerDes|Agent", "x"), None);
    }

    #[test]
    fn bytes_that_are_cut_short_or_no_metadata_are_not_read() {
        let whole = metadata("far", &[("UCX", "address")]);
        let head =
            whole.len() - metadata("", &[]).len() + b"nixlSerDes|Agent--------|Conns----------------|".len();
        for end in 0..head {
            assert!(MetadataHead::read(&whole[..end]).is_none(), "{end}");
        }
        assert!(MetadataHead::read(&whole[..head]).is_some());
        assert!(MetadataHead::read(b"hello").is_none());
        let mut endless = metadata("far", &[]);
        let count = endless.len() - metadata("", &[]).len() + b"nixlSerDes|Agent--------|Conns--------".len();
        endless[count..count + 8].fill(0xFF);
        assert!(MetadataHead::read(&endless).is_none());
    }
}
