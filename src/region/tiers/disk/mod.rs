// SPDX-License-Identifier: Apache-2.0
//! Disk regions: a file of fixed size.
//!
//! The caller owns a file with a path: it is created if it did not exist, and never deleted, unless a later step of the
//! creation fails. A temporary file has no name, so no crash leaves it behind.

mod config;
mod direct_io;
mod file;
mod fill;
mod label;
mod name;
mod opening;
mod writer_lock;

pub use config::{DiskConfig, OpenMode};
pub use direct_io::DirectIo;
pub use file::DiskFile;
pub use label::Label;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests need no repetition")]
mod tests {
    use std::path::PathBuf;

    use rustix::fs;

    use super::*;
    use crate::base::Status;
    use crate::region::Backing;
    use crate::test_folder::TestFolder;

    fn config(size: u64, path: Option<PathBuf>) -> DiskConfig {
        DiskConfig { size, path, ..DiskConfig::default() }
    }

    #[test]
    fn a_temporary_file_has_its_size_and_no_name() {
        let file = DiskFile::open(&config(1 << 20, None)).unwrap();
        let stat = fs::fstat(file.fd()).unwrap();
        assert_eq!((stat.st_size, stat.st_nlink), (1 << 20, 0));
        assert_eq!(file.path().err().unwrap().status(), Status::NotFound);
    }

    #[test]
    fn a_named_file_persists_and_is_not_created_twice() {
        let folder = TestFolder::new();
        let path = folder.join("named");
        DiskFile::open(&config(4096, Some(path.clone()))).unwrap().keep();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        DiskFile::open(&config(4096, Some(path.clone()))).err().unwrap().assert_is(Status::AlreadyExists, "");
        let open = DiskConfig { opening: OpenMode::Existing, ..config(0, Some(path.clone())) };
        assert_eq!(DiskFile::open(&open).unwrap().size(), 4096);
        let more = DiskConfig { size: 4097, ..open };
        assert_eq!(DiskFile::open(&more).err().unwrap().status(), Status::OutOfRange);
    }

    #[test]
    fn a_file_without_disk_space_is_removed() {
        let path = PathBuf::from(format!("/dev/shm/kvmem-disk-test-{}", std::process::id()));
        DiskFile::open(&config(1 << 50, Some(path.clone())))
            .err()
            .unwrap()
            .assert_is(Status::OutOfMemory, "");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_beside_another_has_its_file_system_and_no_name() {
        let folder = TestFolder::new();
        for path in [None, Some(folder.join("beside"))] {
            let file = DiskFile::open(&config(4096, path)).unwrap();
            file.keep();
            let beside = file.beside(8192).unwrap();
            assert_eq!(beside.file_system(), file.file_system());
            assert_eq!((beside.size(), beside.is_direct()), (8192, file.is_direct()));
            let stat = fs::fstat(beside.fd()).unwrap();
            assert_eq!(stat.st_nlink, 0);
            assert_ne!(stat.st_ino, fs::fstat(file.fd()).unwrap().st_ino);
        }
    }

    #[test]
    fn creating_a_file_in_a_removed_folder_fails() {
        let folder = TestFolder::new();
        let file = DiskFile::open(&config(4096, Some(folder.join("file")))).unwrap();
        drop(folder);
        file.beside(4096).err().unwrap().assert_is(Status::NotFound, "");
    }

    #[test]
    fn a_new_file_is_removed_with_its_region_unless_it_is_kept() {
        let folder = TestFolder::new();
        let path = folder.join("given-up");
        drop(DiskFile::open(&config(4096, Some(path.clone()))).unwrap());
        assert!(!path.exists());
        // Another file at the same path is not removed.
        let file = DiskFile::open(&config(4096, Some(path.clone()))).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"another");
        // A file that existed before is not removed either.
        let open = DiskConfig { opening: OpenMode::OpenOrCreate, ..config(7, Some(path.clone())) };
        drop(DiskFile::open(&open).unwrap());
        assert!(path.exists());
    }

    #[test]
    fn a_directory_is_not_a_file() {
        let invalid = Status::InvalidArgument;
        let expected = [
            (OpenMode::Create, Status::AlreadyExists),
            (OpenMode::Existing, invalid),
            (OpenMode::OpenOrCreate, invalid),
        ];
        for (opening, status) in expected {
            let config = DiskConfig { opening, ..config(4096, Some(std::env::temp_dir())) };
            DiskFile::open(&config).err().unwrap().assert_is(status, "");
        }
    }
}
