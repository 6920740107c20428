// SPDX-License-Identifier: Apache-2.0
//! Agents, registrations and NIXL's memory types, which layouts and shares refer to. Their functions are in `nixl`.

use std::ffi::CString;
use std::sync::Arc;

use crate::base::Result;
use crate::ffi::common::{Handle, not_one_of, opaque};
use crate::nixl::{Agent, MemoryType};
use crate::region::Registration;

/// A NIXL agent. A thread of kvmem makes its NIXL calls, or a thread that waits for one of its transfers.
/// Registrations, layouts and transfers keep the agent alive. nixl.h has its functions.
///
/// Threads: kvmem makes the NIXL calls of an agent one at a time: a function waits for those of other
/// threads, and for one step of each transfer in flight. None of these waits for a peer, but NIXL sets no
/// time limit for any of them. A function without a timeout fails with KVMEM_STATUS_TIMED_OUT after
/// call_timeout_ns of the agent, which is 10 minutes by default, also if its comment does not list that
/// status; docs/nixl.md has the limits.
pub struct kvmem_agent {
    handle: Handle<Named>,
}
opaque!(kvmem_agent, Named, "agent");

/// An agent, and its name as a C string.
pub struct Named {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Its name.
    pub name: CString,
}

/// A region that is registered with an agent. It keeps both alive. The region is deregistered before its
/// memory is freed. nixl.h has its functions.
pub struct kvmem_registration {
    handle: Handle<Arc<Registration>>,
}
opaque!(kvmem_registration, Arc<Registration>, "registration");

/// Host memory.
pub const KVMEM_MEMORY_DRAM: u32 = 1;
/// GPU memory.
pub const KVMEM_MEMORY_VRAM: u32 = 2;
/// A file.
pub const KVMEM_MEMORY_FILE: u32 = 3;
/// A block device, or a store of blocks.
pub const KVMEM_MEMORY_BLOCK: u32 = 4;
/// An object store.
pub const KVMEM_MEMORY_OBJECT: u32 = 5;

/// The C value of a memory type.
pub(in crate::ffi) fn memory_type(memory_type: MemoryType) -> u32 {
    match memory_type {
        MemoryType::Dram => KVMEM_MEMORY_DRAM,
        MemoryType::Vram => KVMEM_MEMORY_VRAM,
        MemoryType::File => KVMEM_MEMORY_FILE,
        MemoryType::Block => KVMEM_MEMORY_BLOCK,
        MemoryType::Object => KVMEM_MEMORY_OBJECT,
    }
}

/// The memory type of a C value.
pub(in crate::ffi) fn memory_type_of(value: u32) -> Result<MemoryType> {
    let found = MemoryType::ALL.into_iter().find(|known| memory_type(*known) == value);
    found.ok_or_else(|| not_one_of("memory_type", value, "KVMEM_MEMORY_*"))
}
