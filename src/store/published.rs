// SPDX-License-Identifier: Apache-2.0
//! How far readers in other processes may read the journal of a writer.
//!
//! A record that could not be written completely is withdrawn, so readers read no record before its writer says so. What was said is not
//! withdrawn. It is written without a sync: a loss of power ends the readers, too.

use super::files::{Files, StoreFile, WRITER_SIZE};
use crate::base::Result;

/// Where it is in the file.
const AT: usize = 64;
const SIZE: usize = WRITER_SIZE - AT;
/// A few in ten million reads are torn. A file that changes at each of these reads has no writer that publishes.
const MAX_READS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub generation: u64,
    /// The number of the first record that is not published.
    pub records: u64,
}

impl Published {
    /// `None` while a writer opens the store.
    pub fn read(files: &impl Files, store: [u8; 16]) -> Result<Option<Self>> {
        if files.size(StoreFile::Writer)?.is_none_or(|size| size < WRITER_SIZE as u64) {
            return Ok(None);
        }
        let mut last = None;
        for _ in 0..MAX_READS {
            let mut bytes = [0; SIZE];
            files.read(StoreFile::Writer, AT as u64, &mut bytes)?;
            let [generation, records] = [0, 8].map(|at| {
                bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
            });
            let published = Self { generation, records };
            let is_valid = bytes == published.to_bytes(store);
            // What is read twice is not torn by a writer that publishes meanwhile.
            if is_valid || last.replace(bytes) == Some(bytes) {
                return Ok(is_valid.then_some(published));
            }
        }
        Ok(None)
    }

    pub fn write(self, files: &impl Files, store: [u8; 16]) -> Result<()> {
        files.write(StoreFile::Writer, AT as u64, &self.to_bytes(store))
    }

    fn to_bytes(self, store: [u8; 16]) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.records.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&store), &bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}
