// SPDX-License-Identifier: Apache-2.0
//! Sockets at paths: what is replaced, and what is removed.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use super::*;
use crate::test_folder::TestFolder;

fn socket_in(directory: &TestFolder) -> PathBuf {
    directory.join("s")
}

fn stale(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(path.exists());
}

#[test]
fn the_path_has_the_requested_mode_and_is_removed_with_the_listener() {
    let directory = TestFolder::new();
    for mode in [0o600, 0o660, 0o666] {
        let listener = Listener::bind(&socket_in(&directory), mode, 8).unwrap();
        let metadata = std::fs::symlink_metadata(socket_in(&directory)).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!((metadata.permissions().mode() & 0o777, directory.entries()), (mode, 1));
        drop(listener);
        assert_eq!(directory.entries(), 0);
    }
}

#[test]
fn binding_a_live_socket_fails_and_a_stale_one_is_replaced() {
    let directory = TestFolder::new();
    stale(&socket_in(&directory));
    let first = Listener::bind(&socket_in(&directory), 0o600, 8).unwrap();
    Listener::bind(&socket_in(&directory), 0o600, 8)
        .err()
        .unwrap()
        .assert_is(Status::AlreadyExists, "this process itself listens there");
    assert_eq!(directory.entries(), 1);
    std::os::unix::net::UnixStream::connect(socket_in(&directory)).unwrap();
    drop(first);
}

#[test]
fn a_file_that_is_not_a_socket_is_unchanged() {
    let directory = TestFolder::new();
    std::fs::write(socket_in(&directory), "precious").unwrap();
    Listener::bind(&socket_in(&directory), 0o600, 8).err().unwrap().assert_is(Status::AlreadyExists, "");
    assert_eq!(std::fs::read(socket_in(&directory)).unwrap(), b"precious");
    std::fs::remove_file(socket_in(&directory)).unwrap();
    std::os::unix::fs::symlink("nowhere", socket_in(&directory)).unwrap();
    assert!(Listener::bind(&socket_in(&directory), 0o600, 8).is_err());
    assert_eq!(directory.entries(), 1);
}

#[test]
fn a_path_that_another_process_has_replaced_is_not_removed() {
    let directory = TestFolder::new();
    let first = Listener::bind(&socket_in(&directory), 0o600, 8).unwrap();
    std::fs::remove_file(socket_in(&directory)).unwrap();
    let second = Listener::bind(&socket_in(&directory), 0o600, 8).unwrap();
    drop(first);
    std::os::unix::net::UnixStream::connect(socket_in(&directory)).unwrap();
    drop(second);
    assert_eq!(directory.entries(), 0);
}

#[test]
fn only_one_of_many_processes_replaces_a_stale_socket() {
    let directory = TestFolder::new();
    for _ in 0..20 {
        stale(&socket_in(&directory));
        let path = socket_in(&directory);
        let results: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| Listener::bind(&path, 0o600, 8))).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(results);
        assert_eq!(directory.entries(), 0);
    }
}

#[test]
fn the_longest_path_works_and_a_stale_one_is_replaced() {
    let directory = TestFolder::new();
    let longest = 107 - directory.as_os_str().len() - "/".len() - "/s".len();
    let deep = directory.join("x".repeat(longest));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("s");
    assert_eq!(path.as_os_str().len(), 107);
    stale(&path);
    let listener = Listener::bind(&path, 0o600, 8).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(listener);
    assert_eq!(std::fs::read_dir(&deep).unwrap().count(), 0);
}

/// A socket under a temporary name, as in a process that is killed before it renames it.
fn abandoned(directory: &TestFolder) -> PathBuf {
    let name = bind_aside(&socket().unwrap(), &socket_in(directory), Mode::from_raw_mode(0o600)).unwrap();
    let path = name.path.clone();
    std::mem::forget(name);
    path
}

#[test]
fn sockets_that_killed_processes_have_left_are_removed() {
    let directory = TestFolder::new();
    let left = [abandoned(&directory), abandoned(&directory)];
    let begun = socket().unwrap();
    let live = bind_aside(&begun, &socket_in(&directory), Mode::from_raw_mode(0o600)).unwrap();
    retried::listen(&begun, 8).unwrap();
    let file = directory.join(".kvmem-broker-0123456789ab");
    std::fs::write(&file, "precious").unwrap();
    let other = directory.join(".kvmem-broker-other");
    stale(&other);
    let listener = Listener::bind(&socket_in(&directory), 0o600, 8).unwrap();
    assert!(left.iter().all(|path| !path.exists()));
    assert!(live.path.exists() && file.exists() && other.exists());
    drop((listener, live));
    assert_eq!(directory.entries(), 2);
}

#[test]
fn a_socket_that_another_process_is_about_to_listen_on_stays() {
    let directory = TestFolder::new();
    let _lock = lock_directory(&socket_in(&directory)).unwrap();
    let begun = abandoned(&directory);
    drop(Listener::bind(&socket_in(&directory), 0o600, 8).unwrap());
    assert!(begun.exists());
}

#[test]
fn a_path_that_is_too_long_or_missing_is_reported() {
    let folder = std::env::temp_dir();
    for length in [108, 109, 120] {
        let long = folder.join("x".repeat(length - folder.as_os_str().len() - 1));
        assert_eq!(long.as_os_str().len(), length);
        let error = Listener::bind(&long, 0o600, 8).err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert!(error.message().contains(&format!("this one has {length}")), "{error}");
    }
    Listener::bind(Path::new("/nowhere/at/all"), 0o600, 8).err().unwrap().assert_is(Status::NotFound, "");
    for path in ["", "/", ".."] {
        let error = Listener::bind(Path::new(path), 0o600, 8).err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument, "{path}: {error}");
    }
}

#[test]
fn an_error_names_a_temporary_name_that_is_left() {
    let directory = TestFolder::new();
    let (path, taken) = (socket_in(&directory), directory.join(".kvmem-broker-0123456789ab"));
    stale(&path);
    stale(&taken);
    let after = || or_left(error!(AlreadyExists, "listens"), &taken, || rename(&taken, &path)).to_string();
    let left = format!("listens; the socket is left as {} (EEXIST)", taken.display());
    assert!(after().contains(&left) && taken.exists(), "{}", after());
    std::fs::remove_file(&path).unwrap();
    assert!(after().ends_with("listens") && path.exists() && !taken.exists());
    assert!(after().ends_with("listens"), "there is none");
}

/// On NFS, for example.
#[test]
fn a_file_system_that_cannot_keep_what_a_rename_would_replace_is_enough() {
    std::thread::spawn(|| {
        forbid(libc::SYS_renameat2, libc::EINVAL);
        let directory = TestFolder::new();
        stale(&socket_in(&directory));
        let first = Listener::bind(&socket_in(&directory), 0o600, 8).unwrap();
        let second = Listener::bind(&socket_in(&directory), 0o600, 8).err().unwrap();
        second.assert_is(Status::AlreadyExists, "this process itself listens there");
        assert_eq!(directory.entries(), 1);
        std::os::unix::net::UnixStream::connect(socket_in(&directory)).unwrap();
        drop(first);
        assert_eq!(directory.entries(), 0);
    })
    .join()
    .unwrap();
}

/// Has a system call of this thread fail.
#[allow(unsafe_code)]
fn forbid(call: libc::c_long, errno: libc::c_int) {
    let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let (load, jump, ret) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let mut steps = [
        step(load, 0, 0),
        step(jump, 1, call as u32),
        step(ret, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(ret, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter lives through the calls, which change this thread only.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(is_set, "{}", std::io::Error::last_os_error());
}
