// SPDX-License-Identifier: Apache-2.0
//! How much memory is available, checked before it is allocated or accessed: accessing more than exists does not fail,
//! the kernel ends processes instead.
//!
//! A possible allocation must not fail. So memory that could be dropped or swapped out counts as available, and without a
//! figure from the kernel there is no limit.

use std::path::{Path, PathBuf};

use super::numa::NumaPlacement;
use crate::base::{Result, ensure};

/// Fails if `size` bytes of ordinary pages are not available.
pub fn ensure_available(size: u64, numa: Option<NumaPlacement>) -> Result<()> {
    System(PathBuf::from("/")).ensure_available(size, numa)
}

/// Fails for memory that is populated later, and can never be populated completely. The kernel itself fails only for
/// private mappings that exceed the whole machine; a memory file can have any size.
pub fn ensure_fits(size: u64, numa: Option<NumaPlacement>) -> Result<()> {
    System(PathBuf::from("/")).ensure_fits(size, numa)
}

/// Fails if a node has too few free huge pages.
pub fn ensure_huge_pages_of(node: u32, size: u64, page: u64) -> Result<()> {
    System(PathBuf::from("/")).ensure_huge_pages_of(node, size, page)
}

/// The root directory of the kernel's files.
struct System(PathBuf);

/// A number of available bytes, and the limit that applies.
struct Available {
    bytes: u64,
    place: String,
}

fn bound_to(numa: Option<NumaPlacement>) -> Option<u32> {
    match numa? {
        NumaPlacement::Bind(node) => Some(node),
        NumaPlacement::Prefer(_) => None,
    }
}

impl System {
    fn ensure_available(&self, size: u64, numa: Option<NumaPlacement>) -> Result<()> {
        let bound = bound_to(numa).and_then(|node| self.of_node(node));
        let machine = self.of_machine("MemAvailable:", "SwapFree:");
        let limits = machine.into_iter().chain(bound).chain(self.of_groups(Group::left));
        within_all(limits, size)
    }

    fn ensure_fits(&self, size: u64, numa: Option<NumaPlacement>) -> Result<()> {
        // The administrator has allowed any overcommitment.
        if self.number("proc/sys/vm/overcommit_memory") == Some(1) {
            return Ok(());
        }
        let bound = bound_to(numa).and_then(|node| self.whole_node(node));
        let machine = self.of_machine("MemTotal:", "SwapTotal:");
        let limits = machine.into_iter().chain(bound).chain(self.of_groups(Group::whole));
        within_all(limits, size)
    }

    fn ensure_huge_pages_of(&self, node: u32, size: u64, page: u64) -> Result<()> {
        let name = format!("hugepages/hugepages-{}kB", page / 1024);
        // The kernel allocates more huge pages on demand.
        if self.number(&format!("sys/kernel/mm/{name}/nr_overcommit_hugepages")) != Some(0) {
            return Ok(());
        }
        let file = format!("sys/devices/system/node/node{node}/{name}");
        let Some(free) = self.number(&format!("{file}/free_hugepages")) else { return Ok(()) };
        ensure!(
            size.div_ceil(page) <= free,
            OutOfMemory,
            "{} of them are needed on NUMA node {node}, which has {free} free; raise /{file}/nr_hugepages",
            size.div_ceil(page)
        );
        Ok(())
    }

    fn whole_node(&self, node: u32) -> Option<Available> {
        let text = self.read(&format!("sys/devices/system/node/node{node}/meminfo"))?;
        let bytes = kilobytes(&text, "MemTotal:")? + self.swap("SwapTotal:");
        Some(Available { bytes, place: format!("on NUMA node {node}") })
    }

    fn of_machine(&self, memory: &str, swap: &str) -> Option<Available> {
        let bytes = kilobytes(&self.read("proc/meminfo")?, memory)? + self.swap(swap);
        Some(Available { bytes, place: "on this machine".to_string() })
    }

    fn swap(&self, name: &str) -> u64 {
        self.read("proc/meminfo").and_then(|text| kilobytes(&text, name)).unwrap_or(0)
    }

    fn of_node(&self, node: u32) -> Option<Available> {
        let text = self.read(&format!("sys/devices/system/node/node{node}/meminfo"))?;
        let bytes = |name| kilobytes(&text, name).unwrap_or(0);
        let droppable = bytes("FilePages:").saturating_sub(bytes("Shmem:")) + bytes("SReclaimable:");
        let bytes = kilobytes(&text, "MemFree:")? + droppable + self.swap("SwapFree:");
        Some(Available { bytes, place: format!("on NUMA node {node}") })
    }

    /// The limits of the control group of the process, and of all its ancestors.
    ///
    /// The file is that of the main thread, on whichever thread it is read, and that is the right one. In the second
    /// version a thread may be in a threaded group of its own, but such a group has no limit of memory: the limit is that
    /// of the domain above it, which all threads of a process share. In the first version a thread may be in another
    /// memory group, but the kernel charges the memory of a process to the group of its main thread. After a main thread
    /// has ended, the first version shows "/", which limits nothing, so no possible allocation fails.
    fn of_groups(&self, bytes: impl Fn(&Group, &Self) -> Option<u64>) -> Vec<Available> {
        let Some(text) = self.read("proc/self/cgroup") else { return Vec::new() };
        let groups = text.lines().filter_map(Group::from_line).flat_map(Group::with_all_above);
        let available = |group: Group| {
            let place = format!("under the memory limit of control group {}", group.path);
            bytes(&group, self).map(|bytes| Available { bytes, place })
        };
        groups.filter_map(available).collect()
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(path)).ok()
    }
}

fn within_all(limits: impl Iterator<Item = Available>, size: u64) -> Result<()> {
    if let Some(Available { bytes, place }) = limits.min_by_key(|available| available.bytes) {
        ensure!(
            size <= bytes,
            OutOfMemory,
            "{size} bytes of host memory requested, {bytes} are available {place}"
        );
    }
    Ok(())
}

/// A control group of version 1 or 2.
#[derive(Clone)]
struct Group {
    is_first_version: bool,
    path: String,
}

impl Group {
    /// Parses a line of /proc/self/cgroup: "0::/path", or "4:memory:/path" in version 1.
    fn from_line(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_first_version = controllers.split(',').any(|controller| controller == "memory");
        (is_first_version || controllers.is_empty())
            .then(|| Self { is_first_version, path: path.to_string() })
    }

    fn with_all_above(self) -> Vec<Self> {
        let paths = Path::new(&self.path).ancestors();
        paths.map(|path| Self { path: path.to_string_lossy().into_owned(), ..self.clone() }).collect()
    }

    /// Bytes that are still available under its limit; `None` without a limit.
    fn left(&self, system: &System) -> Option<u64> {
        let [limit, usage, _, swap_usage] = self.files();
        let left = self.number(system, limit)?.saturating_sub(self.number(system, usage)?);
        let stat = system.read(&format!("{}/memory.stat", self.folder())).unwrap_or_default();
        let droppable: u64 = self.droppable().iter().filter_map(|name| field(&stat, name)).sum();
        let swapped = self.number(system, swap_usage).unwrap_or(0);
        let swap = self.swap_limit(system).saturating_sub(swapped).min(system.swap("SwapFree:"));
        Some(left.saturating_add(droppable).saturating_add(swap))
    }

    /// Bytes that would be available under its limit if it contained nothing else; `None` without a limit.
    fn whole(&self, system: &System) -> Option<u64> {
        let limit = self.number(system, self.files()[0])?;
        Some(limit.saturating_add(self.swap_limit(system).min(system.swap("SwapTotal:"))))
    }

    fn swap_limit(&self, system: &System) -> u64 {
        self.number(system, self.files()[2]).unwrap_or(u64::MAX)
    }

    fn number(&self, system: &System, name: &str) -> Option<u64> {
        system.number(&format!("{}/{name}", self.folder()))
    }

    fn folder(&self) -> String {
        let controller = if self.is_first_version { "/memory" } else { "" };
        format!("sys/fs/cgroup{controller}{}", self.path)
    }

    /// The files with the limit and the usage of memory, and with those of swap.
    fn files(&self) -> [&'static str; 4] {
        if self.is_first_version {
            // Version 1 limits the sum of memory and swap, not swap itself.
            ["memory.limit_in_bytes", "memory.usage_in_bytes", "", ""]
        } else {
            ["memory.max", "memory.current", "memory.swap.max", "memory.swap.current"]
        }
    }

    fn droppable(&self) -> &'static [&'static str] {
        if self.is_first_version {
            &["total_inactive_file", "total_active_file"]
        } else {
            &["inactive_file", "active_file", "slab_reclaimable"]
        }
    }
}

/// The value of a line of meminfo.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.checked_mul(1024)
}

/// The value behind a name. Lines of a node's meminfo begin with the node's number.
fn field(text: &str, name: &str) -> Option<u64> {
    text.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;
    use crate::base::Status;
    use crate::test_folder::TestFolder;

    /// The kernel's files as a machine has them.
    struct Machine(TestFolder);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Self {
            let root = TestFolder::new();
            for (path, text) in files {
                let path = root.join(path);
                create_dir_all(path.parent().unwrap()).unwrap();
                write(path, text).unwrap();
            }
            Self(root)
        }

        fn system(&self) -> System {
            System(self.0.to_path_buf())
        }

        fn expect_available(&self, bytes: u64, numa: Option<NumaPlacement>, place: &str) {
            assert!(self.system().ensure_available(bytes, numa).is_ok());
            let error = self.system().ensure_available(bytes + 1, numa).unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory);
            let expected =
                format!("{} bytes of host memory requested, {bytes} are available {place}", bytes + 1);
            assert_eq!(error.message(), expected);
        }
    }

    const MEMINFO: &str = "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   50 kB\nSwapFree: 2 kB\n";

    #[test]
    fn the_limit_is_the_memory_of_the_machine_including_swap() {
        let machine = Machine::new(&[("proc/meminfo", MEMINFO)]);
        machine.expect_available(52 << 10, None, "on this machine");
        machine.expect_available(52 << 10, Some(NumaPlacement::Prefer(0)), "on this machine");
    }

    fn expect_fit(machine: &Machine, bytes: u64, numa: Option<NumaPlacement>, place: &str) {
        assert!(machine.system().ensure_fits(bytes, numa).is_ok());
        machine.system().ensure_fits(bytes + 1, numa).unwrap_err().assert_is(Status::OutOfMemory, place);
    }

    #[test]
    fn memory_for_later_is_limited_by_machine_node_and_control_group() {
        let meminfo = format!("{MEMINFO}SwapTotal: 7 kB\n");
        let node = "Node 1 MemTotal: 40 kB\nNode 1 MemFree: 4 kB\n";
        let files = [("proc/meminfo", meminfo.as_str()), ("sys/devices/system/node/node1/meminfo", node)];
        let machine = Machine::new(&files);
        expect_fit(&machine, 107 << 10, None, "on this machine");
        expect_fit(&machine, 47 << 10, Some(NumaPlacement::Bind(1)), "on NUMA node 1");
        expect_fit(&machine, 107 << 10, Some(NumaPlacement::Prefer(1)), "on this machine");
        let group = [
            ("proc/meminfo", meminfo.as_str()),
            ("proc/self/cgroup", "0::/job\n"),
            ("sys/fs/cgroup/job/memory.max", "30000\n"),
            ("sys/fs/cgroup/job/memory.current", "29000\n"),
            ("sys/fs/cgroup/job/memory.swap.max", "500\n"),
        ];
        let machine = Machine::new(&group);
        expect_fit(&machine, 30_500, None, "under the memory limit of control group /job");
    }

    #[test]
    fn overcommitment_disables_the_limit() {
        let files = [("proc/meminfo", MEMINFO), ("proc/sys/vm/overcommit_memory", "1\n")];
        assert!(Machine::new(&files).system().ensure_fits(u64::MAX, None).is_ok());
    }

    #[test]
    fn huge_pages_are_counted_on_their_node() {
        let node = "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages";
        let overcommit = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";
        let machine = Machine::new(&[(node, "3\n"), (overcommit, "0\n")]);
        assert!(machine.system().ensure_huge_pages_of(1, 6 << 20, 2 << 20).is_ok());
        let error = machine.system().ensure_huge_pages_of(1, (6 << 20) + 1, 2 << 20).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.message().contains("4 of them") && error.message().contains("3 free"), "{error}");
        let machine = Machine::new(&[(node, "3\n"), (overcommit, "1\n")]);
        assert!(machine.system().ensure_huge_pages_of(1, 8 << 20, 2 << 20).is_ok());
    }

    #[test]
    fn values_that_the_kernel_does_not_report_set_no_limit() {
        let machine = Machine::new(&[("proc/meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\n")]);
        assert!(machine.system().ensure_available(u64::MAX, None).is_ok());
    }

    #[test]
    fn bound_memory_is_limited_by_its_node() {
        let node =
            "Node 1 MemFree: 4 kB\nNode 1 FilePages: 9 kB\nNode 1 Shmem: 6 kB\nNode 1 SReclaimable: 1 kB\n";
        let files = [("proc/meminfo", MEMINFO), ("sys/devices/system/node/node1/meminfo", node)];
        let machine = Machine::new(&files);
        machine.expect_available(10 << 10, Some(NumaPlacement::Bind(1)), "on NUMA node 1");
        machine.expect_available(52 << 10, Some(NumaPlacement::Prefer(1)), "on this machine");
    }

    #[test]
    fn the_smallest_control_group_is_the_limit() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("sys/fs/cgroup/outer/memory.max", "30000\n"),
            ("sys/fs/cgroup/outer/memory.current", "20000\n"),
            (
                "sys/fs/cgroup/outer/memory.stat",
                "anon 7\ninactive_file 500\nactive_file 20\nslab_reclaimable 3\n",
            ),
            ("sys/fs/cgroup/outer/memory.swap.max", "0\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/memory.current", "20000\n"),
        ];
        let machine = Machine::new(&files);
        machine.expect_available(10_523, None, "under the memory limit of control group /outer");
    }

    #[test]
    fn control_groups_of_version_1_are_limits_too() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8000\n"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 1\n",
            ),
        ];
        let machine = Machine::new(&files);
        machine.expect_available(1101 + 2048, None, "under the memory limit of control group /job");
    }
}
