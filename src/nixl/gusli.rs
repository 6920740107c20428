// SPDX-License-Identifier: Apache-2.0
//! Inputs for which NIXL's plugin GUSLI ends the process, or changes bytes beside the memory that it gets. They are refused before the
//! plugin gets them. Measured with NIXL 1.5.

use std::collections::BTreeMap;

use rustix::param::page_size;

use super::backend::leading_number;
use super::descriptor::{Descriptor, MemoryType};
use crate::base::{Result, ensure};

pub(super) const PLUGIN: &str = "GUSLI";
/// Ranges of host memory that are registered at a time. The plugin ends the process at the next one.
const MAX_RANGES: usize = 16;
/// The parameter for the parts of requests that it executes at a time. It fails a request that exceeds them.
const MAX_PARTS: &str = "max_num_simultaneous_requests";
const CONFIG_VERSION: u64 = 1;

/// The pages that host memory is in. The plugin maps other pages in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPages {
    /// Nothing else is in them.
    Own,
    /// The first and the last one may contain other memory.
    Shared,
    /// They are page-locked for GPUs, which would continue to use the replaced ones.
    Locked,
}

/// Fails if the plugin would end the process for host memory, or would replace other memory too. `known` is the number of ranges
/// that are registered.
pub(super) fn ensure_memory(memory: &Descriptor, pages: HostPages, known: usize) -> Result<()> {
    if memory.memory_type != MemoryType::Dram {
        return Ok(());
    }
    let Descriptor { address, size, .. } = *memory;
    let page = page_size() as u64;
    ensure!(
        pages != HostPages::Locked,
        Unsupported,
        "host memory at {address:#x} is page-locked, and NIXL's plugin {PLUGIN} would replace its pages, but not for GPUs; build \
         the layout for block storage in system memory"
    );
    let last = (pages == HostPages::Shared).then_some(address.wrapping_add(size));
    ensure!(
        address.is_multiple_of(page) && last.is_none_or(|end| end.is_multiple_of(page)),
        InvalidArgument,
        "host memory at {address:#x} of {size} bytes is not whole pages, and NIXL's plugin {PLUGIN} replaces whole pages: its start \
         and its size must be multiples of {page} bytes. Allocate it with mmap or aligned_alloc, or let kvmem allocate it"
    );
    ensure!(
        known < MAX_RANGES,
        Unsupported,
        "{known} ranges of host memory are registered with NIXL's plugin {PLUGIN}, which can have no more; allocate the layers of a \
         layout as one region, or deregister other memory first"
    );
    Ok(())
}

/// Fails if the plugin would end the process for parameters of a backend.
pub(super) fn ensure_parameters(parameters: &BTreeMap<String, String>) -> Result<()> {
    ensure!(
        max_parts(parameters) != Some(0),
        InvalidArgument,
        "the parameter {MAX_PARTS} is 0; it must be 1 to 511"
    );
    let Some(config) = parameters.get("config_file") else { return Ok(()) };
    let version = if config.contains('\n') {
        version_of(config)
    } else {
        // A path. What cannot be read is the plugin's to report.
        std::fs::read_to_string(config).ok().and_then(|text| version_of(&text))
    };
    ensure!(
        version.is_none_or(|version| version == CONFIG_VERSION),
        InvalidArgument,
        "the parameter config_file has version={}; the plugin {PLUGIN} knows version={CONFIG_VERSION}",
        version.unwrap_or_default()
    );
    Ok(())
}

/// The most parts of requests that the plugin executes at a time, if its parameters say that.
pub(super) fn max_parts(parameters: &BTreeMap<String, String>) -> Option<usize> {
    parameters.get(MAX_PARTS).and_then(|value| value.trim().parse().ok())
}

/// The version that the first line with one has.
fn version_of(config: &str) -> Option<u64> {
    let value = config.lines().find_map(|line| line.trim_start().strip_prefix("version="))?;
    leading_number(value.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    fn host(address: u64, size: u64) -> Descriptor {
        Descriptor { address, size, device_id: 0, memory_type: MemoryType::Dram }
    }

    #[test]
    fn only_whole_pages_are_accepted() {
        let page = page_size() as u64;
        for (address, size, pages, expected) in [
            (page, page, HostPages::Shared, None),
            (page, page + 1, HostPages::Own, None),
            (page, page + 1, HostPages::Shared, Some(Status::InvalidArgument)),
            (page + 512, page - 512, HostPages::Shared, Some(Status::InvalidArgument)),
            (page + 512, page, HostPages::Own, Some(Status::InvalidArgument)),
            (page, page, HostPages::Locked, Some(Status::Unsupported)),
        ] {
            let outcome = ensure_memory(&host(address, size), pages, 0);
            assert_eq!(outcome.err().map(|error| error.status()), expected, "{address} {size} {pages:?}");
        }
        assert!(ensure_memory(&host(page, page), HostPages::Own, MAX_RANGES - 1).is_ok());
        assert!(ensure_memory(&host(page, page), HostPages::Own, MAX_RANGES).is_err());
        let block = Descriptor { memory_type: MemoryType::Block, ..host(1, 1) };
        assert!(ensure_memory(&block, HostPages::Shared, MAX_RANGES).is_ok(), "storage is not mapped");
    }

    #[test]
    fn parameters_that_end_the_process_are_refused() {
        for (key, value, is_accepted) in [
            ("config_file", "# Config file\nversion=1\n", true),
            ("config_file", "# Config file\nversion= 1x\n", true),
            ("config_file", "# Config file\n", true),
            ("config_file", "# Config file\nversion=2\nversion=1\n", false),
            ("config_file", "version=99999999999999999999\n", false),
            ("config_file", "/no/such/file", true),
            ("max_num_simultaneous_requests", "1", true),
            ("max_num_simultaneous_requests", "many", true),
            ("max_num_simultaneous_requests", "00", false),
        ] {
            let parameters = BTreeMap::from([(key.to_string(), value.to_string())]);
            assert_eq!(ensure_parameters(&parameters).is_ok(), is_accepted, "{key} {value}");
        }
    }
}
