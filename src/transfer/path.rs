// SPDX-License-Identifier: Apache-2.0
//! The ways that bytes can go, and which there are between two layouts.

use crate::error::{Result, ensure, fail};
use crate::layout::{Layout, Locality};
use crate::nixl::MemoryType;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Copied by the CPU.
    Memcpy,
    /// Read from a peer by NIXL.
    NixlRead,
    /// Written to a peer by NIXL.
    NixlWrite,
    /// Read from a file by NIXL.
    NixlFileRead,
    /// Written to a file by NIXL.
    NixlFileWrite,
    /// Copied by the CUDA driver, one copy a move.
    CudaCopy,
    /// Copied by the CUDA driver, all in one call.
    CudaBatch,
    /// Copied by the CUDA driver, in rows at regular distances.
    Cuda2d,
    /// Copied by a kernel.
    CudaKernel,
    /// Gathered or scattered by a kernel in device memory, and copied from or to there by the CUDA driver.
    CudaStaged,
    /// Read from or written to a file by io_uring.
    Uring,
    /// Read from or written to a file by threads that call preadv and pwritev.
    Pread,
    /// Between a file and a GPU through host memory, the file's side by io_uring.
    UringStaged,
    /// The same with threads.
    PreadStaged,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

impl Path {
    /// Its name, for people.
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Memcpy => c"memcpy",
            Self::NixlRead => c"NIXL read",
            Self::NixlWrite => c"NIXL write",
            Self::NixlFileRead => c"NIXL file read",
            Self::NixlFileWrite => c"NIXL file write",
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

    /// Between GPU memory and what a GPU reaches, by the driver or a kernel.
    pub fn is_cuda(self) -> bool {
        matches!(self, Self::CudaCopy | Self::CudaBatch | Self::Cuda2d | Self::CudaKernel | Self::CudaStaged)
    }

    /// To or from a file, by kvmem itself.
    pub fn is_disk(self) -> bool {
        matches!(self, Self::Uring | Self::Pread | Self::UringStaged | Self::PreadStaged)
    }

    /// Between the same two kinds of memory as another way.
    pub fn is_alike(self, other: Self) -> bool {
        let staged = |path| matches!(path, Self::UringStaged | Self::PreadStaged);
        (self.is_cuda() && other.is_cuda())
            || (self.is_disk() && other.is_disk() && staged(self) == staged(other))
    }
}

/// Which way to take can only be asked of layouts between which there are several.
pub fn ensure_possible(natural: Path, asked: Option<Path>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let possible = natural == asked || natural.is_alike(asked);
    ensure!(possible, Unsupported, "path {asked} is not possible between these layouts; possible: {natural}");
    Ok(())
}

/// The way, or one of several that are weighed later. Between a file of this machine and host memory NIXL is taken only
/// when it is asked for.
pub fn choose(source: &Layout, destination: &Layout, asked: Option<Path>) -> Result<Path> {
    use Locality::Remote;
    use MemoryType::{Dram, File};
    let side = |layout: &Layout| (layout.memory().locality() == Remote, layout.memory_type());
    match (side(source), side(destination)) {
        ((true, _), (true, _)) => fail!(
            Unsupported,
            "both layouts are remote; one of the two agents must move the blocks, or they go through a local layout"
        ),
        ((false, File), (false, File)) => {
            fail!(Unsupported, "both layouts are on disk; blocks go through a host layout")
        }
        ((true, _), (_, File)) | ((_, File), (true, _)) => {
            fail!(
                Unsupported,
                "NIXL moves no blocks between a file and a peer; they go through a host layout"
            )
        }
        ((true, _), (false, _)) => Ok(Path::NixlRead),
        ((false, _), (true, _)) => Ok(Path::NixlWrite),
        ((false, Dram), (false, Dram)) => Ok(Path::Memcpy),
        ((false, File), (false, _)) if asked == Some(Path::NixlFileRead) => Ok(Path::NixlFileRead),
        ((false, _), (false, File)) if asked == Some(Path::NixlFileWrite) => Ok(Path::NixlFileWrite),
        ((false, File), (false, Dram)) | ((false, Dram), (false, File)) => Ok(Path::Uring),
        ((false, File), (false, _)) | ((false, _), (false, File)) => Ok(Path::UringStaged),
        ((false, _), (false, _)) => Ok(Path::CudaCopy),
    }
}
