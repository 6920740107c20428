// SPDX-License-Identifier: Apache-2.0
//! Folders of tests.

#![allow(clippy::unwrap_used)]

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The path of a folder that no other test has. What is there is removed when this is dropped, also if the test fails.
pub struct TestFolder(PathBuf);

impl TestFolder {
    /// A folder that does not exist yet.
    pub fn missing() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("kvmem-test-{}-{number}", std::process::id())))
    }

    /// An empty folder, which all users may enter.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = Self::missing();
        std::fs::create_dir(&*folder).unwrap();
        std::fs::set_permissions(&*folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
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
