// SPDX-License-Identifier: Apache-2.0
//! The pages that a mapping actually has.

use std::io::{BufRead, BufReader};
use std::os::fd::BorrowedFd;

use crate::base::process::explain_proc;
use crate::base::{Error, Result, error, retried};
use crate::region::proc_maps::addresses;

/// HUGETLBFS_MAGIC of <linux/magic.h>.
const HUGETLBFS: u32 = 0x9584_58f6;
/// The list of the calling thread, because that of the process is empty once the main thread has ended.
const STATISTICS: &str = "/proc/thread-self/smaps";

pub fn transparent_huge_page_size() -> usize {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let size = text.ok().and_then(|text| text.trim().parse().ok());
    size.filter(|size: &usize| size.is_power_of_two()).unwrap_or(2 << 20)
}

/// Whether the kernel provides transparent huge pages on request, for private memory or for memory files.
pub fn transparent_huge_pages_offered(for_files: bool) -> bool {
    let setting = if for_files { "shmem_enabled" } else { "enabled" };
    let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{setting}"));
    text.is_ok_and(|text| !text.contains("[never]") && !text.contains("[deny]"))
}

/// The size of the pages of a file on hugetlbfs, for any size: on arm64 also 64 KiB and 32 MiB. `None` for a file of ordinary
/// pages.
pub fn huge_page_size(file: BorrowedFd<'_>) -> Result<Option<usize>> {
    let stat = retried::fstatfs(file)
        .map_err(|errno| Error::errno("get the size of a memory file's pages", errno))?;
    if stat.f_type as u32 != HUGETLBFS {
        return Ok(None);
    }
    let size = usize::try_from(stat.f_bsize).ok().filter(|size| size.is_power_of_two());
    let strange = || error!(Corrupt, "a memory file has pages of {} bytes", stat.f_bsize);
    size.ok_or_else(strange).map(Some)
}

/// How much of a range is resident in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// In memory, on pages of any size.
    pub resident: u64,
    /// In memory, on transparent huge pages.
    pub transparent_huge: u64,
    pub swapped: u64,
}

/// How much of the mappings of a range is resident now. The kernel walks the pages of all earlier mappings too.
pub fn residency(address: usize, size: usize) -> Result<Residency> {
    let unreadable = |error| {
        let what = format!("find out from {STATISTICS} how much of a region is in memory");
        explain_proc(Error::io(what, &error))
    };
    let file = std::fs::File::open(STATISTICS).map_err(unreadable)?;
    let mut inside = false;
    let mut found = Residency::default();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(unreadable)?;
        let line = String::from_utf8_lossy(&line);
        if let Some(addresses) = addresses(&line) {
            if addresses.start >= (address + size) as u64 {
                break;
            }
            inside = addresses.end > address as u64;
        } else if inside {
            found.count(&line);
        }
    }
    // The kernel may have joined a mapping with a neighbour.
    Ok(found.at_most(size as u64))
}

impl Residency {
    /// Adds the value of a line of a mapping's entry: "Name:   12 kB".
    fn count(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let field = match name {
            // Pages of hugetlbfs are not among the resident ones.
            "Rss" | "Shared_Hugetlb" | "Private_Hugetlb" => &mut self.resident,
            // Of anonymous memory and of memory files.
            "AnonHugePages" | "ShmemPmdMapped" => &mut self.transparent_huge,
            "Swap" => &mut self.swapped,
            _ => return,
        };
        *field += value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
    }

    fn at_most(self, size: u64) -> Self {
        Self {
            resident: self.resident.min(size),
            transparent_huge: self.transparent_huge.min(size),
            swapped: self.swapped.min(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn every_kind_of_page_is_counted_once() {
        let mut residency = Residency::default();
        let lines = [
            "Rss:                  12 kB",
            "Pss:                  12 kB",
            "AnonHugePages:         8 kB",
            "ShmemPmdMapped:        0 kB",
            "FilePmdMapped:         4 kB",
            "Private_Hugetlb:    2048 kB",
            "Shared_Hugetlb:        0 kB",
            "Swap:                  4 kB",
            "SwapPss:               4 kB",
            "VmFlags: rd wr mr mw me ac sd",
        ];
        lines.into_iter().for_each(|line| residency.count(line));
        let expected = Residency { resident: (12 + 2048) << 10, transparent_huge: 8 << 10, swapped: 4 << 10 };
        assert_eq!(residency, expected);
        assert_eq!(residency.at_most(1 << 20).resident, 1 << 20);
    }

    #[test]
    fn a_file_of_ordinary_pages_has_no_huge_ones() {
        let file = memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(huge_page_size(file.as_fd()).unwrap(), None);
    }

    /// Whatever size it is, as on another architecture: it is the file's, not one of a list.
    #[test]
    fn a_file_of_huge_pages_has_the_size_that_it_was_created_with() {
        let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten();
        for name in sizes.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            let kilobytes = name.trim_start_matches("hugepages-").trim_end_matches("kB");
            let size = kilobytes.parse::<usize>().unwrap() << 10;
            let flags = MemfdFlags::from_bits_retain(size.trailing_zeros() << libc::MFD_HUGE_SHIFT);
            let file = memfd_create("pages", MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC | flags).unwrap();
            assert_eq!(huge_page_size(file.as_fd()).unwrap(), Some(size), "{name}");
        }
    }
}
