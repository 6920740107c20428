// SPDX-License-Identifier: Apache-2.0
//! Result codes of the driver, and which of them an error was caused by.

use std::ffi::c_uint;

use crate::base::{Cause, Error, Status};

/// A `CUresult` as a number.
pub type Code = c_uint;

/// CUDA_ERROR codes that are handled in different ways.
pub(super) const INVALID_VALUE: Code = 1;
pub(super) const OUT_OF_MEMORY: Code = 2;
pub(super) const DEINITIALIZED: Code = 4;
pub(super) const NO_DEVICE: Code = 100;
pub(super) const INVALID_DEVICE: Code = 101;
pub(super) const INVALID_CONTEXT: Code = 201;
pub(super) const ALREADY_MAPPED: Code = 208;
pub(super) const NO_BINARY_FOR_GPU: Code = 209;
pub(super) const INVALID_PTX: Code = 218;
pub(super) const UNSUPPORTED_PTX_VERSION: Code = 222;
pub(super) const JIT_COMPILATION_DISABLED: Code = 223;
pub(super) const INVALID_HANDLE: Code = 400;
pub(super) const NOT_FOUND: Code = 500;
pub(super) const NOT_READY: Code = 600;
pub(super) const CONTEXT_IS_DESTROYED: Code = 709;
pub(super) const NOT_PERMITTED: Code = 800;
pub(super) const NOT_SUPPORTED: Code = 801;
pub(super) const STREAM_CAPTURE_UNSUPPORTED: Code = 900;
pub(super) const STREAM_CAPTURE_INVALIDATED: Code = 901;
pub(super) const STREAM_CAPTURE_IMPLICIT: Code = 906;

/// Whether the driver returned one of these codes. False for an error whose status is OUT_OF_MEMORY: when a resource
/// has run out the driver may return any code, so the code says nothing about the cause.
pub(super) fn has_code(error: &Error, codes: &[Code]) -> bool {
    error.status() != Status::OutOfMemory
        && matches!(error.cause(), Some(Cause::Cuda(code, _)) if codes.contains(&(*code as Code)))
}
