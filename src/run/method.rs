// SPDX-License-Identifier: Apache-2.0
//! The methods of transfers. Direction and kinds of memory follow from the layouts.

/// The method by which bytes move between two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferMethod {
    Memcpy,
    /// Copied by the CUDA driver, one call per copy.
    CudaCopy,
    /// Copied by the CUDA driver, all in one call.
    CudaBatch,
    /// Copied by the CUDA driver, as rows with a constant stride.
    Cuda2d,
    CudaKernel,
    /// Gathered or scattered by a kernel in staging memory, which the CUDA driver copies to or from the host.
    CudaStaged,
    /// A file, by io_uring; for GPU memory through host memory.
    Uring,
    /// A file, by threads that call preadv and pwritev; for GPU memory through host memory.
    Pread,
    /// By NIXL, between the layouts.
    Nixl,
    /// By NIXL in large ranges of staging memory of this process.
    NixlStaged,
    /// By NIXL in large ranges of staging memory of the owner, which gathers or scatters.
    NixlServed,
}

impl std::fmt::Display for TransferMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

impl TransferMethod {
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Memcpy => c"memcpy",
            Self::CudaCopy => c"CUDA copy",
            Self::CudaBatch => c"CUDA batch",
            Self::Cuda2d => c"CUDA 2D copy",
            Self::CudaKernel => c"CUDA kernel",
            Self::CudaStaged => c"CUDA staged",
            Self::Uring => c"io_uring",
            Self::Pread => c"pread/pwrite",
            Self::Nixl => c"NIXL",
            Self::NixlStaged => c"NIXL, staged",
            Self::NixlServed => c"NIXL, served",
        }
    }

    /// Whether it is executed by the CUDA driver or a kernel.
    pub fn is_cuda(self) -> bool {
        matches!(self, Self::CudaCopy | Self::CudaBatch | Self::Cuda2d | Self::CudaKernel | Self::CudaStaged)
    }
}
