// SPDX-License-Identifier: Apache-2.0
//! What processes see of each other's changes of a folder.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_bytes::ByteBuf;

use super::*;
use crate::base::folder_lock::FolderLock;
use crate::directory::entry::Presence;
use crate::directory::folder::opening::MAX_OPENINGS;
use crate::test_folder::TestFolder;

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn other_users_can_read_an_entry_only_once_it_is_locked() {
    let path = TestFolder::new();
    let folder = Folder::open(&path).unwrap();
    let lock = folder.create_locked(".new").unwrap();
    assert_eq!(mode_of(&path.join(".new")), 0o600);
    assert!(is_locked(lock.file(), OWNER).is_ok(), "its own lock does not count");
    let read = std::fs::File::open(path.join(".new")).unwrap();
    assert!(is_locked(read.as_fd(), OWNER).unwrap());
    // The entry has the permissions that an ordinary file gets.
    let own = folder.write("a", vec![7]).unwrap();
    std::fs::write(path.join("ordinary"), []).unwrap();
    assert_eq!(mode_of(&path.join("a.agent")), mode_of(&path.join("ordinary")) & 0o644);
    folder.remove("a", &own).unwrap();
}

fn bytes(incarnation: u64) -> Vec<u8> {
    let presence = Presence { name: "a".to_string(), incarnation, version: 1 };
    Entry { presence, metadata: ByteBuf::new(), layouts: Vec::new() }.write().unwrap()
}

/// The incarnation of the entry, if its process is alive.
fn incarnation(folder: &Folder) -> Option<u64> {
    match folder.find("a").unwrap() {
        Found::Entry(entry) => Some(entry.presence.incarnation),
        _ => None,
    }
}

/// It may be stopped, or only read.
#[test]
fn a_process_that_locks_the_folder_delays_and_prevents_no_change() {
    let path = TestFolder::new();
    let folder = Folder::open(&path).unwrap();
    let _lock = FolderLock::take(folder.fd().unwrap(), Duration::ZERO).unwrap();
    let own = folder.write("a", bytes(1)).unwrap();
    assert_eq!(incarnation(&folder), Some(1));
    drop(own);
    assert!(matches!(folder.find("a").unwrap(), Found::Ended));
    assert!(matches!(folder.find("a").unwrap(), Found::Nothing), "it was removed");
    let own = folder.write("a", bytes(2)).unwrap();
    folder.remove("a", &own).unwrap();
    assert_eq!(path.entries(), 0);
}

#[test]
fn an_entry_that_was_published_since_the_look_is_not_removed_or_replaced() {
    let path = TestFolder::new();
    let folder = Folder::open(&path).unwrap();
    let first = folder.write("a", bytes(1)).unwrap();
    // Moved aside by a process that had looked at an earlier one.
    let aside = folder.take_aside("a").unwrap().unwrap();
    folder.put_back(&aside, "a");
    assert_eq!(incarnation(&folder), Some(1));
    // A newer one is published before it is moved back.
    let aside = folder.take_aside("a").unwrap().unwrap();
    let second = folder.write("a", bytes(2)).unwrap();
    folder.put_back(&aside, "a");
    assert_eq!((incarnation(&folder), path.entries()), (Some(2), 1));
    assert!(!folder.remove_inode("a", first.inode).unwrap());
    assert!(folder.write_again("a", bytes(1), 1).unwrap().is_none());
    assert_eq!((incarnation(&folder), path.entries()), (Some(2), 1));
    drop((first, second));
    // Missing, damaged, and of a process that has ended.
    for before in [None, Some(vec![1, 2]), Some(bytes(2))] {
        let _ = std::fs::remove_file(path.join("a.agent"));
        if let Some(before) = before {
            std::fs::write(path.join("a.agent"), before).unwrap();
        }
        let own = folder.write_again("a", bytes(1), 1).unwrap().unwrap();
        assert!(folder.is_own("a", &own).unwrap());
        assert_eq!((incarnation(&folder), path.entries()), (Some(1), 1));
    }
}

/// Each of them is opened in several steps, and another process moves it between two of them, less often than it is opened again.
#[test]
fn a_folder_that_is_moved_while_it_is_opened_is_opened_again() {
    let path = TestFolder::new();
    let aside = TestFolder::new();
    let (is_over, moves_left) = (AtomicBool::new(false), AtomicUsize::new(0));
    let opened: Vec<Result<bool>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut moved = 0;
            while !is_over.load(Ordering::Relaxed) {
                let may_move = moves_left.load(Ordering::Acquire) > 0;
                if may_move && std::fs::rename(&path, aside.join(moved.to_string())).is_ok() {
                    moved += 1;
                    moves_left.fetch_sub(1, Ordering::Release);
                }
            }
        });
        let mut folder = Folder::open(&path).unwrap();
        let mut open = |_| {
            moves_left.store(MAX_OPENINGS / 2, Ordering::Release);
            folder = folder.open_again()?;
            folder.write("a", bytes(1))?;
            Ok(folder.inotify.as_ref().is_some_and(|inotify| inotify.changes().names.contains("a")))
        };
        let opened = (0..200).map(&mut open).collect();
        is_over.store(true, Ordering::Relaxed);
        opened
    });
    for is_watched in opened {
        assert!(is_watched.unwrap(), "another folder is watched than the one that is open");
    }
}

/// Owner, group and permissions.
fn users_of(path: &Path) -> (u32, u32, u32) {
    let of = std::fs::metadata(path).unwrap();
    (of.uid(), of.gid(), of.mode() & 0o7777)
}

#[test]
fn a_folder_that_is_created_again_has_the_users_of_the_one_before() {
    let parent = TestFolder::new();
    let path = parent.join("shared");
    std::fs::create_dir(&path).unwrap();
    // Root gives it to another user, and any user can give it permissions.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&path, Some(4711), Some(4712)).unwrap();
    }
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2775)).unwrap();
    let users = users_of(&path);
    let mut folder = Folder::open(&path).unwrap();
    std::fs::remove_dir(&path).unwrap();
    folder = folder.open_again().unwrap();
    assert_eq!((users_of(&path), folder.is_in_place()), (users, true));
    // Those it has now, also if they were changed while it was open.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
    std::fs::rename(&path, parent.join("elsewhere")).unwrap();
    drop(folder.open_again().unwrap());
    assert_eq!(users_of(&path), (users.0, users.1, 0o750));
    assert_eq!(parent.entries(), 2, "no folder is left under another name");
}
