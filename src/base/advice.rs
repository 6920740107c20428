// SPDX-License-Identifier: Apache-2.0
//! Advice for failed system calls: the limit that was reached, its value, and how to raise it.
//!
//! [`for_errno`] applies to all calls, and is part of every error with such an errno. The other functions are for errors of
//! certain calls.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::base::retried;

/// Advice for an errno of any call.
pub fn for_errno(errno: Errno) -> Option<String> {
    match errno {
        Errno::MFILE => Some(open_files()),
        Errno::NFILE => Some(open_files_of_all()),
        Errno::FBIG => Some(file_size()),
        Errno::DQUOT => Some(
            "the quota of this user or group on the file system is used up; raise it, or free space".into(),
        ),
        _ => None,
    }
}

fn open_files() -> String {
    match getrlimit(Resource::Nofile).current {
        Some(most) => format!(
            "this process may have {most} open file descriptors (RLIMIT_NOFILE); raise the limit, for example with ulimit -n, \
             or close some"
        ),
        None => "close some file descriptors of this process".into(),
    }
}

/// The limits that a process may exceed when it starts a thread. The errno does not say which of them it is.
pub fn threads() -> Option<String> {
    let mut limits = Vec::new();
    if let Some(most) = getrlimit(Resource::Nproc).current {
        limits.push(format!("this user may have {most} threads (RLIMIT_NPROC; ulimit -u)"));
    }
    if let Some(most) = getrlimit(Resource::As).current {
        limits.push(format!("this process may map {most} bytes (RLIMIT_AS; ulimit -v)"));
    }
    limits.push("the control group may have as many threads as its pids.max says".into());
    Some(format!("raise the limit that was reached, or end threads: {}", limits.join("; ")))
}

fn open_files_of_all() -> String {
    // Only a privileged process can read it without a free file descriptor.
    let most = std::fs::read_to_string("/proc/sys/fs/file-max").ok();
    let most = most.map_or(String::new(), |text| format!(" of {}", text.trim()));
    format!("the machine's limit{most} on open files is reached; raise fs.file-max")
}

fn file_size() -> String {
    match getrlimit(Resource::Fsize).current {
        Some(most) => format!(
            "a file of this process may have {most} bytes (RLIMIT_FSIZE); raise the limit, for example with ulimit -f"
        ),
        None => "the size exceeds the maximum of the file system".into(),
    }
}

pub fn free_space(file: BorrowedFd<'_>) -> Option<String> {
    let stat = retried::fstatvfs(file).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let name = retried::readlink(&format!("/proc/self/fd/{}", file.as_raw_fd()));
    let name = name.map_or("the file".into(), |name| name.to_string_lossy().into_owned());
    Some(format!("{free} bytes are free on the file system of {name}"))
}

/// The limit on locked memory, which kernels before 5.12 apply to rings of io_uring.
pub fn locked_memory() -> Option<String> {
    let most = getrlimit(Resource::Memlock).current?;
    Some(format!(
        "this user may lock {most} bytes of memory (RLIMIT_MEMLOCK), and kernels before 5.12 count a ring as locked; raise \
         the limit, for example with ulimit -l"
    ))
}

pub fn huge_pages(page: u64) -> Option<String> {
    huge_pages_in("/sys/kernel/mm/hugepages", page)
}

fn huge_pages_in(folder: &str, page: u64) -> Option<String> {
    let name = format!("{folder}/hugepages-{}kB", page / 1024);
    let number = |file: &str| {
        let text = std::fs::read_to_string(format!("{name}/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let Some(total) = number("nr_hugepages") else {
        return Some(format!(
            "this system has no huge pages of {page} bytes; {folder} lists the sizes it has"
        ));
    };
    // The kernel counts a reserved page as free until it is used.
    let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages").unwrap_or(0));
    Some(format!(
        "the system has {total} huge pages of {page} bytes, {free} of them free; raise {name}/nr_hugepages"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn advice_contains_the_limit_and_its_value() {
        let most = getrlimit(Resource::Nofile).current.map_or(String::new(), |most| most.to_string());
        let advice = for_errno(Errno::MFILE).unwrap();
        assert!(advice.contains(&most) && (most.is_empty() || advice.contains("RLIMIT_NOFILE")), "{advice}");
        assert!(for_errno(Errno::NFILE).unwrap().contains("fs.file-max"));
        assert_eq!(for_errno(Errno::IO), None);
    }

    #[test]
    fn advice_on_free_space_contains_the_path() {
        let folder = TestFolder::new();
        let path = folder.join("file");
        let file = std::fs::File::create(&path).unwrap();
        let advice = free_space(file.as_fd()).unwrap();
        assert!(advice.contains(&*path.to_string_lossy()), "{advice}");
    }

    #[test]
    fn reserved_huge_pages_do_not_count_as_free() {
        let folder = TestFolder::new();
        let pages = folder.join("hugepages-2048kB");
        std::fs::create_dir(&pages).unwrap();
        for (name, text) in [("nr_hugepages", "10\n"), ("free_hugepages", "7\n"), ("resv_hugepages", "3\n")] {
            std::fs::write(pages.join(name), text).unwrap();
        }
        let folder_text = folder.to_string_lossy();
        let advice = huge_pages_in(&folder_text, 2 << 20).unwrap();
        let none = huge_pages_in(&folder_text, 1 << 30).unwrap();
        assert!(
            advice.starts_with("the system has 10 huge pages of 2097152 bytes, 4 of them free"),
            "{advice}"
        );
        assert!(none.contains("no huge pages of 1073741824"), "{none}");
    }
}
