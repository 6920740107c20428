// SPDX-License-Identifier: Apache-2.0
//! The fuzz corpus, and thousands of changes to it, give a result or an error: what the fuzzer in fuzz/ does, without it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../fuzz/fuzz_targets/reading.rs"]
mod reading;

use std::path::Path;

/// Changes to each file.
const CHANGES: usize = 2000;
/// What a file's name begins with that is no share and no layout descriptor.
const DAMAGED: &str = "damaged";

/// Name and bytes of each file, in the order of the names.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/share");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut files: Vec<_> = files.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// A generator of the same numbers every time: Marsaglia's xorshift.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes bytes as a fuzzer does; `other` is where it takes pieces from.
fn change(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len());
    let until = (at + numbers.below(32)).min(bytes.len());
    match numbers.below(7) {
        0 => bytes[at] ^= 1 << numbers.below(8),
        1 => bytes[at] = numbers.next() as u8,
        2 => bytes[at] = [0x00, 0x1B, 0x3B, 0x5B, 0x7B, 0x9B, 0xBB, 0xFF, 0x9F, 0xBF][numbers.below(10)],
        3 => drop(bytes.drain(at..until)),
        4 => drop(bytes.splice(at..at, bytes[at..until].to_vec())),
        5 => {
            let from = numbers.below(other.len());
            let piece = other[from..(from + numbers.below(64)).min(other.len())].to_vec();
            drop(bytes.splice(at..until, piece));
        }
        _ => bytes.truncate(at.max(1)),
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

#[test]
fn every_file_is_what_its_name_says() {
    let corpus = corpus();
    assert!(corpus.len() > 16, "the corpus is there");
    for (name, bytes) in &corpus {
        assert_eq!(reading::read(bytes), !name.starts_with(DAMAGED), "{name}");
        assert_eq!(&reading::sealed(bytes), bytes, "{name}: it is the fields that are tried");
    }
}

#[test]
fn changed_files_give_a_result_or_an_error() {
    let corpus = corpus();
    let mut numbers = Numbers(0x6b76_6d65_6d21);
    for (_, original) in &corpus {
        let mut bytes = original.clone();
        for round in 0..CHANGES {
            if round % 8 == 0 {
                bytes.clone_from(original);
            }
            let (_, other) = &corpus[numbers.below(corpus.len())];
            change(&mut bytes, other, &mut numbers);
            reading::read(&bytes);
            reading::read(&reading::sealed(&bytes));
        }
    }
}
