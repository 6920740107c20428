// SPDX-License-Identifier: Apache-2.0
//! Converts panics to errors at the boundary to C, and on threads that other work depends on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::error::{Error, Result, error};

/// Runs some work. Converts a panic to an error.
#[inline]
pub fn guarded<R>(work: impl FnOnce() -> R) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked)
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Error {
    let text = payload.downcast::<String>().map(|text| *text);
    let text = text.or_else(|other| other.downcast::<&str>().map(|text| text.to_string()));
    let text = text.unwrap_or_else(|other| {
        // Dropping a payload of another type can panic again.
        std::mem::forget(other);
        "no message".into()
    });
    error!(Panic, "a bug in kvmem was hit: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(guarded(|| 7).unwrap(), 7);
        for error in [guarded(|| panic!("deliberate")), guarded(|| panic!("{}", "deliberate"))] {
            let error: Error = error.map(|(): ()| ()).unwrap_err();
            error.assert_is(Status::Panic, "deliberate");
        }
    }
}
