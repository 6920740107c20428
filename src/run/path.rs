// SPDX-License-Identifier: Apache-2.0
//! The paths of transfers.
#![forbid(unsafe_code)]

/// The path by which bytes move between two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferPath {
    /// Copied by the CPU.
    Memcpy,
    /// Read from a peer by NIXL.
    NixlRead,
    /// Written to a peer by NIXL.
    NixlWrite,
    /// Read from a peer by NIXL in large ranges, whose rows the CPU copies.
    NixlReadStaged,
    /// Gathered by the CPU, and written to a peer by NIXL in large ranges.
    NixlWriteStaged,
    /// Gathered by the peer, and read from it by NIXL in large ranges.
    NixlReadServed,
    /// Written to the peer by NIXL in large ranges, which it scatters.
    NixlWriteServed,
    /// Read from a file by NIXL.
    NixlFileRead,
    /// Written to a file by NIXL.
    NixlFileWrite,
    /// Read from objects by NIXL.
    NixlObjectRead,
    /// Written to objects by NIXL.
    NixlObjectWrite,
    /// Read from objects by NIXL into staging memory, whose rows are copied from there.
    NixlObjectReadStaged,
    /// Gathered in staging memory, and written to objects by NIXL.
    NixlObjectWriteStaged,
    /// Read from block storage by NIXL.
    NixlBlockRead,
    /// Written to block storage by NIXL.
    NixlBlockWrite,
    /// Copied by the CUDA driver, one call per copy.
    CudaCopy,
    /// Copied by the CUDA driver, all in one call.
    CudaBatch,
    /// Copied by the CUDA driver, as rows with a constant stride.
    Cuda2d,
    /// Copied by a kernel.
    CudaKernel,
    /// Gathered or scattered by a kernel in staging memory, which the CUDA driver copies to or from the host.
    CudaStaged,
    /// Read from or written to a file by io_uring.
    Uring,
    /// Read from or written to a file by threads that call preadv and pwritev.
    Pread,
    /// Between a file and a GPU through host memory, the file's side by io_uring.
    UringStaged,
    /// Between a file and a GPU through host memory, the file's side by threads.
    PreadStaged,
}

impl std::fmt::Display for TransferPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

impl TransferPath {
    /// Its name in messages.
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Memcpy => c"memcpy",
            Self::NixlRead => c"NIXL read",
            Self::NixlWrite => c"NIXL write",
            Self::NixlReadStaged => c"NIXL read, staged",
            Self::NixlWriteStaged => c"NIXL write, staged",
            Self::NixlReadServed => c"NIXL read, served",
            Self::NixlWriteServed => c"NIXL write, served",
            Self::NixlFileRead => c"NIXL file read",
            Self::NixlFileWrite => c"NIXL file write",
            Self::NixlObjectRead => c"NIXL object read",
            Self::NixlObjectWrite => c"NIXL object write",
            Self::NixlObjectReadStaged => c"NIXL object read, staged",
            Self::NixlObjectWriteStaged => c"NIXL object write, staged",
            Self::NixlBlockRead => c"NIXL block read",
            Self::NixlBlockWrite => c"NIXL block write",
            Self::CudaCopy => c"CUDA copy",
            Self::CudaBatch => c"CUDA batch",
            Self::Cuda2d => c"CUDA 2D copy",
            Self::CudaKernel => c"CUDA kernel",
            Self::CudaStaged => c"CUDA staged",
            Self::Uring => c"io_uring",
            Self::Pread => c"pread/pwrite",
            Self::UringStaged => c"io_uring, staged",
            Self::PreadStaged => c"pread/pwrite, staged",
        }
    }

    /// Whether it is executed by the CUDA driver or a kernel.
    pub fn is_cuda(self) -> bool {
        matches!(self, Self::CudaCopy | Self::CudaBatch | Self::Cuda2d | Self::CudaKernel | Self::CudaStaged)
    }

    /// Whether NIXL moves bytes between this process and a peer.
    pub fn has_peer(self) -> bool {
        matches!(
            self,
            Self::NixlRead
                | Self::NixlReadStaged
                | Self::NixlReadServed
                | Self::NixlWrite
                | Self::NixlWriteStaged
                | Self::NixlWriteServed
        )
    }

    /// Whether NIXL reads.
    pub fn is_nixl_read(self) -> bool {
        matches!(
            self,
            Self::NixlRead
                | Self::NixlReadStaged
                | Self::NixlReadServed
                | Self::NixlFileRead
                | Self::NixlObjectRead
                | Self::NixlObjectReadStaged
                | Self::NixlBlockRead
        )
    }

    /// Whether NIXL reads or writes objects.
    pub fn has_objects(self) -> bool {
        matches!(
            self,
            Self::NixlObjectRead
                | Self::NixlObjectWrite
                | Self::NixlObjectReadStaged
                | Self::NixlObjectWriteStaged
        )
    }

    /// Whether NIXL reads or writes a file.
    pub fn is_nixl_file(self) -> bool {
        matches!(self, Self::NixlFileRead | Self::NixlFileWrite)
    }

    /// Whether kvmem itself reads or writes a file.
    pub fn is_disk(self) -> bool {
        matches!(self, Self::Uring | Self::Pread | Self::UringStaged | Self::PreadStaged)
    }

    /// Whether it connects the same two types of memory as another path.
    pub fn is_alike(self, other: Self) -> bool {
        let staged = |path| matches!(path, Self::UringStaged | Self::PreadStaged);
        (self.is_cuda() && other.is_cuda())
            || (self.has_peer() && other.has_peer() && self.is_nixl_read() == other.is_nixl_read())
            || (self.has_objects() && other.has_objects() && self.is_nixl_read() == other.is_nixl_read())
            || (self.is_disk() && other.is_disk() && staged(self) == staged(other))
    }
}
