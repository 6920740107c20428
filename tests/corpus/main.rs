// SPDX-License-Identifier: Apache-2.0
//! Runs the targets of fuzz/ on their corpora and on thousands of mutations, without the fuzzer. Each input gives a
//! result or an error. `KVMEM_BLESS=1 cargo test --test corpus` writes the seeds again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../fuzz/fuzz_targets/reading.rs"]
mod reading;
mod seeds;

use std::path::{Path, PathBuf};

use reading::{TARGETS, Target};

/// Mutations of each file.
const CHANGES: usize = 2000;
/// The prefix of names of files that are not valid.
const DAMAGED: &str = "damaged";

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name)
}

/// Returns name and bytes of each file, sorted by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut files: Vec<_> = files.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// A deterministic generator of numbers: Marsaglia's xorshift.
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

/// Mutates bytes as a fuzzer does. Some mutations insert a piece of `other`.
fn change(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    if bytes.is_empty() {
        bytes.push(0);
    }
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
}

#[test]
fn seeds_match_the_current_writers() {
    for seed in seeds::all() {
        let path = folder(seed.target).join(seed.name);
        if std::env::var_os("KVMEM_BLESS").is_some() {
            std::fs::create_dir_all(folder(seed.target)).unwrap();
            std::fs::write(&path, &seed.bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), seed.bytes, "{}", path.display());
    }
}

#[test]
fn every_file_matches_its_name() {
    for target in &TARGETS {
        let corpus = corpus(target);
        assert!(corpus.len() >= 10, "the corpus of {} has only {} files", target.name, corpus.len());
        for (name, bytes) in &corpus {
            assert_eq!((target.read)(bytes), !name.starts_with(DAMAGED), "{}/{name}", target.name);
            assert_eq!(
                &(target.sealed)(bytes),
                bytes,
                "{}/{name}: a seed has correct lengths and checksums, so that its fields are read",
                target.name
            );
        }
    }
}

#[test]
fn changed_files_give_a_result_or_an_error() {
    for target in &TARGETS {
        let corpus = corpus(target);
        let mut numbers = Numbers(0x6b76_6d65_6d21);
        for (_, original) in &corpus {
            let mut bytes = original.clone();
            for round in 0..CHANGES {
                if round % 8 == 0 {
                    bytes.clone_from(original);
                }
                let (_, other) = &corpus[numbers.below(corpus.len())];
                change(&mut bytes, other, &mut numbers);
                target.run(&bytes);
            }
        }
    }
}

/// Every byte of files up to this size is changed.
const WHOLE: usize = 8 << 10;
/// In longer files, which repeat their content, the bytes at both ends are changed, and one of so many others. This is
/// no power of two, so that it selects all positions within a word.
const STEP: usize = 97;
const END: usize = 512;

/// Returns the positions at which a file is changed and truncated.
fn positions(size: usize) -> impl Iterator<Item = usize> {
    let is_end = move |at| at < END || size - at <= END / 8;
    (0..size).filter(move |&at| size <= WHOLE || is_end(at) || at % STEP == 0)
}

#[test]
fn every_changed_byte_every_length_and_more_give_a_result_or_an_error() {
    for target in &TARGETS {
        for (_, original) in corpus(target) {
            for at in positions(original.len()) {
                let mut bytes = original.clone();
                bytes[at] ^= 1 << (at % 8);
                target.run(&bytes);
            }
            positions(original.len()).for_each(|size| target.run(&original[..size]));
            (1..64).for_each(|more| target.run(&[&original[..], &vec![0x5A; more]].concat()));
        }
    }
}

/// Checksums detect damage. Here they are not corrected.
#[test]
fn every_flipped_bit_and_every_truncation_of_a_message_is_detected() {
    let target = reading::target("message");
    for (name, original) in corpus(target) {
        if !matches!(name.as_str(), "share" | "share-of-nothing" | "share-in-three") {
            continue;
        }
        for bit in 0..original.len() * 8 {
            let mut bytes = original.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!(target.read)(&bytes), "{name}, bit {bit}");
        }
        for size in 0..original.len() {
            assert!(!(target.read)(&original[..size]), "{name}, cut at {size}");
        }
    }
}
