// SPDX-License-Identifier: Apache-2.0
//! Folders of tests.

#![allow(clippy::unwrap_used)]

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The path of a folder that no other test has. What is there is removed when this is dropped, also if the test fails.
pub struct TestFolder(PathBuf);

impl TestFolder {
    /// A folder that does not exist yet. Its name is random: processes in containers with the same /tmp can have the same id.
    pub fn missing() -> Self {
        let number = RandomState::new().hash_one(());
        Self(std::env::temp_dir().join(format!("kvmem-test-{number:016x}")))
    }

    /// An empty folder, which all users may enter.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        loop {
            let folder = Self::missing();
            match std::fs::create_dir(&*folder) {
                // Another test removes it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => std::mem::forget(folder),
                created => {
                    created.unwrap();
                    std::fs::set_permissions(&*folder, std::fs::Permissions::from_mode(0o755)).unwrap();
                    return folder;
                }
            }
        }
    }

    pub fn entries(&self) -> usize {
        std::fs::read_dir(self).unwrap().count()
    }
}

impl AsRef<Path> for TestFolder {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Deref for TestFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
