// SPDX-License-Identifier: Apache-2.0
//! Runs the targets of fuzz/ on their corpora and on thousands of mutations, without the fuzzer. Each input gives a
//! result or an error. `KVMEM_BLESS=1 cargo test --test corpus` writes the seeds again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../fuzz/fuzz_targets/reading.rs"]
mod reading;
mod seeds;

use std::path::{Path, PathBuf};

use kvmem::layout::Layout;
use kvmem::share::Manifest;
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

/// Why a share's or a layout descriptor's bytes are refused. A share is read with as many file descriptors as it announces, unless
/// it announces too many.
fn refusal_of_share(bytes: &[u8]) -> String {
    if bytes.starts_with(b"KVMEMLAY") {
        return Layout::check_descriptor(bytes).unwrap_err().to_string();
    }
    let refusals = || (0..16).map(|fds| Manifest::read(bytes, fds).unwrap_err().to_string());
    refusals().find(|refusal| !refusal.contains("announces")).unwrap_or_else(|| refusals().next().unwrap())
}

/// Each damaged seed of the share's target, and what its refusal says. A seed that is refused for another reason tests nothing that is in
/// its name: it has to be converted when a form changes. Unknown fields may contain each other in any number: the
/// seeds with such fields lack other fields.
const REFUSALS: &[(&str, &str)] = &[
    ("alignment-of-three", "alignment is 3"),
    ("allocation-too-small", "do not fit an allocation of 1"),
    ("base-at-the-end", "are outside region 0 at 0xffffffffffffffff"),
    ("blocks-overflow", "num_blocks is 18446744073709551615"),
    ("cut", "end of input bytes"),
    ("deep-arrays", "missing field `process`"),
    ("deep-maps", "missing field `num_blocks`"),
    ("descriptor-parts-in-version-4", "missing field `agent`"),
    ("descriptor-strides-past-the-region", "of 6597069791232 bytes are outside region 0"),
    ("endless-array", "end of input bytes"),
    ("endless-bytes", "end of input bytes"),
    ("endless-map", "end of input bytes"),
    ("extended", "1 bytes follow them"),
    ("extent-past-the-last", "past the last of 4"),
    ("extents-of-nothing", "extents of 0 bytes"),
    ("fabric-extent-named-twice", "its extents are not in order"),
    ("fd-named-twice", "file descriptor 0 is used, expected 1"),
    ("fds-without-end", "announces 4294967295 file descriptors"),
    ("five-strides", "invalid length Some(5), was expecting: 6"),
    ("layers-overflow", "the layout's size is more than 2^63 - 1 bytes"),
    ("mapping-of-nothing", "do not begin in the first and end in the last of 5 mappings"),
    ("mappings-past-the-region", "mappings of 4303355903 bytes"),
    ("never-ended", "end of input bytes"),
    ("offset-past-the-end", "at offset 18446744073709551615 exceed region 0"),
    ("order-of-nothing", "the order is empty"),
    ("order-of-other-letters", "'X' in the order"),
    ("order-with-an-axis-twice", "axis H (head) is in the order 'L/BOHNHC' twice"),
    ("order-without-heads", "lacks axis H (head)"),
    ("size-of-everything", "it has 18446744073709551615 bytes"),
    ("strides-of-everything", "a stride of 18446744073709551615 bytes"),
    ("strides-past-the-region", "a part has 57344 bytes, the layout needs"),
    ("strides-that-overlap", "so that two of them overlap"),
    ("version-5", "has version 5"),
    ("version-7", "has version 7"),
];

#[test]
fn damaged_shares_are_refused_for_the_reason_in_their_name() {
    let mut others = Vec::new();
    for (name, bytes) in corpus(reading::target("share")) {
        let Some(damage) = name.strip_prefix(DAMAGED) else { continue };
        let known = REFUSALS.iter().find(|(name, _)| damage.strip_prefix('-') == Some(name));
        let (_, reason) = known.unwrap_or_else(|| panic!("REFUSALS lacks {name}"));
        let refusal = refusal_of_share(&bytes);
        if !refusal.contains(reason) {
            others.push(format!("{name}: {refusal}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// Only its version is wrong.
#[test]
fn the_descriptor_with_parts_is_valid_in_its_version() {
    let mut bytes =
        std::fs::read(folder(reading::target("share")).join("damaged-descriptor-parts-in-version-4"))
            .unwrap();
    bytes[8] = 5;
    Layout::check_descriptor(&(reading::target("share").sealed)(&bytes)).unwrap();
}
