// SPDX-License-Identifier: Apache-2.0
//! Losses of power at each point of a script: what is left is opened, compared with what the script knows, and used further.

use std::collections::BTreeMap;

use super::bytes;
use super::namespaces::{Tenants, open_tenants};
use super::recorded::{Image, Omitted, Operation, Random, RecordedFiles};
use crate::store::StoreFile;

/// The versions of the blocks that are stored, by number of the key.
type Expected = BTreeMap<u64, u64>;

/// What is stored after each call, with the number of operations that were made by then.
struct Script {
    image: Image,
    operations: Vec<Operation>,
    states: Vec<(usize, Expected)>,
}

/// Puts, evictions, removals and a damaged block in three namespaces, at random; keys are used again with other bytes.
fn script(image: Image, before: Expected, steps: usize, omitted: Omitted, random: &mut Random) -> Script {
    let files = RecordedFiles::new(image.clone(), omitted);
    let tenants = open_tenants(&files).unwrap();
    let Tenants { store, .. } = &tenants;
    let mut versions = before.values().copied().max().unwrap_or(0);
    let (mut now, mut states) = (before, vec![(files.count(), Expected::new())]);
    states[0].1 = now.clone();
    for _ in 0..steps {
        let number = random.below(16) as u64;
        versions += 1;
        match random.below(8) {
            0 => drop(store.remove(&[tenants.key(number)]).unwrap()),
            1 if store.counts().retired < 2 => {
                let run = store.hold_run(&[tenants.key(number)]).unwrap();
                let damaged: &[u64] = if run.is_empty() { &[] } else { &[0] };
                store.release_damaged(run, damaged).unwrap();
            }
            _ => {
                for number in [number, number + 1] {
                    if tenants.put(number, number.checked_sub(1), versions).unwrap() {
                        now.insert(number, versions);
                    }
                    assert!(tenants.has(number));
                    now.retain(|number, _| tenants.has(*number));
                    states.push((files.count(), now.clone()));
                }
            }
        }
        now.retain(|number, _| tenants.has(*number));
        states.push((files.count(), now.clone()));
    }
    Script { image, operations: files.operations(), states }
}

/// Opens what a crash after the first operations has left. Fails with what is wrong; returns what is stored.
fn check(
    script: &Script,
    length: usize,
    random: &mut Random,
) -> std::result::Result<(Image, Expected), String> {
    let image = Image::after_crash(&script.image, &script.operations[..length], random);
    let last = script.states.iter().rposition(|(count, _)| *count <= length);
    let none = Expected::new();
    // Before the first call has returned, there may be no store yet.
    let before = last.map_or(&none, |last| &script.states[last].1);
    let after = last.map_or(Some(&script.states[0]), |last| script.states.get(last + 1));
    let after = after.map_or(before, |(_, state)| state);
    let files = RecordedFiles::new(image, Omitted::Nothing);
    let tenants = open_tenants(&files).map_err(|error| format!("not opened: {error}"))?;
    let mut found = Expected::new();
    for number in 0..20 {
        let (old, new) = (before.get(&number), after.get(&number));
        match tenants.get(number) {
            None if old.is_some() && old == new => return Err(format!("block {number} is lost")),
            None => {}
            Some((block, is_whole)) => {
                let is_stored = |version: &&u64| block == bytes(number, **version);
                let Some(version) = old.iter().chain(&new).find(|version| is_stored(version)) else {
                    let is = |version: &u64| block == bytes(number, *version);
                    let version = (0..2000).find(is);
                    return Err(format!(
                        "block {number} has version {version:?}, not {old:?} or {new:?}; its checksum is right: {is_whole}"
                    ));
                };
                if !is_whole {
                    return Err(format!("block {number} has a wrong checksum"));
                }
                found.insert(number, **version);
            }
        }
    }
    Ok((files.image(), found))
}

/// Crashes a script at each point so many times, and what is left again at a random point. Returns the first fault.
fn crash(seed: u64, steps: usize, times: usize, omitted: Omitted) -> std::result::Result<usize, String> {
    let mut random = Random(seed);
    let script = script_of_new_store(steps, omitted, &mut random);
    let mut crashes = 0;
    for length in 0..=script.operations.len() {
        for _ in 0..times {
            let doing = |what| format!("seed {seed}, crash after {length} operations: {what}");
            let (image, found) = check(&script, length, &mut random).map_err(doing)?;
            let next = self::script(image, found, 3, omitted, &mut random);
            let at = random.below(next.operations.len() + 1);
            check(&next, at, &mut random).map_err(|what| doing(format!("then after {at} more: {what}")))?;
            crashes += 2;
        }
    }
    Ok(crashes)
}

fn script_of_new_store(steps: usize, omitted: Omitted, random: &mut Random) -> Script {
    script(Image::default(), Expected::new(), steps, omitted, random)
}

#[test]
fn a_crash_loses_nothing_that_was_committed_and_leaves_no_wrong_block() {
    // On record: KVMEM_TEST_CRASHES=100000.
    let wanted =
        std::env::var("KVMEM_TEST_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(4000);
    let (mut crashes, mut seed) = (0, 1);
    while crashes < wanted {
        crashes += crash(seed, 40, 2, Omitted::Nothing).unwrap();
        seed += 1;
    }
}

#[test]
fn crashes_during_checkpoints_lose_nothing() {
    let mut random = Random(7);
    // The journal is replaced after 2 records per slot and 1024 more.
    let script = script_of_new_store(1200, Omitted::Nothing, &mut random);
    let renamed = script
        .operations
        .iter()
        .rposition(|operation| matches!(operation, Operation::Rename(StoreFile::NewJournal, ..)));
    let renamed = renamed.unwrap();
    assert!(renamed > 100, "no checkpoint was made");
    for length in renamed - 6..(renamed + 12).min(script.operations.len()) {
        for _ in 0..10 {
            check(&script, length, &mut random).unwrap();
        }
    }
}

#[test]
fn each_omitted_call_is_found() {
    let omitted = [
        Omitted::Sync(StoreFile::Blocks),
        Omitted::Sync(StoreFile::Journal),
        Omitted::Sync(StoreFile::NewJournal),
        Omitted::Sync(StoreFile::NewHeader),
        Omitted::Sync(StoreFile::NewNamespaces),
        Omitted::SyncFolder,
    ];
    for (number, omitted) in omitted.into_iter().enumerate() {
        let found = (1..20).find_map(|seed| crash(seed, 40, 2, omitted).err());
        assert!(found.is_some(), "the fault {number} was not found");
    }
}
