// SPDX-License-Identifier: Apache-2.0
//! Whether work on a device is complete, also if the query returns an error.
//!
//! Some errors mean that work has failed: the driver returns them from every later call, because the context is lost, or
//! once, for one operation of a stream. All others mean only that the query itself failed, for example because another
//! thread captured a stream. The work is then still running or has succeeded, and is queried again.

use super::codes::{Code, DEINITIALIZED, has_code};
use crate::base::{Error, Result, Status, log};

/// CUDA_ERROR codes that mean that work or a context failed, whichever call returns them.
const FAILED: &[Code] = &[
    4,   // DEINITIALIZED
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    226, // CONTAINED
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
    721, // TENSOR_MEMORY_LEAK
    805, // MPS_CONNECTION_FAILED
    806, // MPS_RPC_FAILURE
    807, // MPS_SERVER_NOT_READY
    809, // MPS_CLIENT_TERMINATED
    911, // EXTERNAL_DEVICE
];

/// Codes that mean the same if a query of the work returns them. From other calls they may have another meaning.
const FAILED_IF_QUERIED: &[Code] = &[
    3,   // NOT_INITIALIZED
    46,  // DEVICE_UNAVAILABLE
    201, // INVALID_CONTEXT
    304, // OPERATING_SYSTEM
    400, // INVALID_HANDLE: destroyed with its context
    999, // UNKNOWN
];

/// Whether a code means that work or a context failed, whichever call returns it.
pub(super) fn means_failed(code: Code) -> bool {
    FAILED.contains(&code)
}

/// Whether an error that two queries returned means that none of the work is still running.
pub fn means_lost(error: &Error) -> bool {
    has_code(error, FAILED) || has_code(error, FAILED_IF_QUERIED)
}

/// Whether an object must not be used again after this error: its context is lost, or a panic interrupted a change of it.
/// After any other failure, such as one for lack of memory, it still works.
pub fn is_fatal(error: &Error) -> bool {
    means_lost(error) || error.status() == Status::Panic
}

/// Whether the process exits, and the driver has released everything.
pub(super) fn means_exit(error: &Error) -> bool {
    has_code(error, &[DEINITIALIZED])
}

/// Logs a failure to release an object, which no call returns. Objects that are destroyed after the driver, as by a static
/// destructor of the program, do not exist any more.
pub(super) fn released(outcome: Result<()>) {
    if let Err(error) = outcome
        && !means_exit(&error)
    {
        log!(Error, "{error}");
    }
}

/// Returns whether work is complete, and stores its first failure in `failure`. Memory that the work uses may be released
/// only after this returned true.
pub fn is_over(query: impl Fn() -> Result<bool>, failure: &mut Option<Error>) -> bool {
    match query() {
        Ok(is_over) => is_over,
        Err(error) if means_lost(&error) => {
            failure.get_or_insert(error);
            // The error may be of earlier work, and this work still in progress.
            query().unwrap_or_else(|error| means_lost(&error))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::base::{Cause, error};

    fn outcome(code: i32) -> Result<bool> {
        match code {
            0 => Ok(true),
            600 => Ok(false),
            _ => Err(error!(Cuda, "no").with_cause(Cause::Cuda(code, "NO".into()))),
        }
    }

    /// Queries once a driver that returns these codes in order.
    fn query_once(codes: &[i32]) -> (bool, Option<Error>) {
        let left = RefCell::new(codes.iter());
        let mut failure = None;
        let is_over =
            is_over(|| left.borrow_mut().next().map_or(Ok(false), |code| outcome(*code)), &mut failure);
        assert_eq!(left.borrow().len(), 0, "all codes are consumed");
        (is_over, failure)
    }

    #[test]
    fn an_inconclusive_query_does_not_end_the_work() {
        for code in [1, 2, 900, 901, 906] {
            let (is_over, failure) = query_once(&[code]);
            assert!(!is_over && failure.is_none(), "{code}");
        }
    }

    #[test]
    fn exhausted_memory_and_denied_access_are_not_fatal() {
        for code in [1, 2, 800, 801, 901] {
            assert!(!is_fatal(&outcome(code).unwrap_err()), "{code}");
        }
        for code in [400, 700, 709, 719, 999] {
            assert!(is_fatal(&outcome(code).unwrap_err()), "{code}");
        }
        assert!(!is_fatal(&error!(OutOfMemory, "no")));
        assert!(is_fatal(&error!(Panic, "no")));
    }

    #[test]
    fn only_unambiguous_codes_are_failures_of_earlier_work() {
        for code in [4, 700, 709, 719] {
            assert!(means_failed(code), "{code}");
        }
        for code in [1, 2, 201, 304, 400, 600, 801, 901, 999] {
            assert!(!means_failed(code), "{code}");
        }
    }

    #[test]
    fn a_failure_is_stored_until_the_work_has_ended() {
        for (codes, ends) in [([719, 600], false), ([719, 900], false), ([719, 0], true), ([719, 700], true)]
        {
            let (is_over, failure) = query_once(&codes);
            assert_eq!(is_over, ends, "{codes:?}");
            assert!(matches!(failure.unwrap().cause(), Some(Cause::Cuda(719, _))));
        }
    }
}
