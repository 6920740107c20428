// SPDX-License-Identifier: Apache-2.0
//! What pages a mapping really has.

/// The size of a transparent huge page.
pub fn transparent_huge_page_size() -> usize {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let size = text.ok().and_then(|text| text.trim().parse().ok());
    size.filter(|size: &usize| size.is_power_of_two()).unwrap_or(2 << 20)
}

/// Whether the kernel gives transparent huge pages to those who ask, for memory files too.
pub fn transparent_huge_pages_offered(for_files: bool) -> bool {
    let setting = if for_files { "shmem_enabled" } else { "enabled" };
    let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{setting}"));
    text.is_ok_and(|text| !text.contains("[never]") && !text.contains("[deny]"))
}

/// How many bytes of a range lie on transparent huge pages, as the kernel counts them.
pub fn transparent_huge_bytes(address: usize, size: usize) -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return 0 };
    let mut inside = false;
    let mut kilobytes = 0;
    for line in text.lines() {
        if let Some((start, end)) = mapping_bounds(line) {
            inside = start < address + size && end > address;
        } else if inside && let Some(value) = huge_bytes_in(line) {
            kilobytes += value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        }
    }
    // The kernel may have joined this mapping with a neighbour.
    (kilobytes * 1024).min(size as u64)
}

/// Of anonymous memory and of memory files.
fn huge_bytes_in(line: &str) -> Option<&str> {
    line.strip_prefix("AnonHugePages:").or_else(|| line.strip_prefix("ShmemPmdMapped:"))
}

/// The bounds in the first line of a mapping's entry: "start-end perms ...".
fn mapping_bounds(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}
