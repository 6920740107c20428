// SPDX-License-Identifier: Apache-2.0
//! Logs calls: failed ones at DEBUG, all others at TRACE. Every C function is logged here, so none logs its own failures.

use crate::base::Error;
use crate::base::log::{Level, enabled, write};
use crate::ffi::common::status::{kvmem_status, name};

/// Logs a call that succeeded. The name is that of the type of the function's body, a closure; a call without
/// a name is not logged.
#[inline]
pub fn returned(body_name: &'static str, status: kvmem_status) {
    if enabled(Level::Trace) && !body_name.is_empty() {
        write_returned(body_name, status);
    }
}

#[cold]
fn write_returned(body_name: &'static str, status: kvmem_status) {
    let (module, function) = split(body_name);
    write(Level::Trace, module, format_args!("{function}: {}", name(status)));
}

/// Logs a call that failed. A wait whose timeout has elapsed is logged like a success, because callers that poll expect it.
pub fn failed(body_name: &'static str, error: &Error) {
    let level = if error.is_elapsed() { Level::Trace } else { Level::Debug };
    if enabled(level) && !body_name.is_empty() {
        let (module, function) = split(body_name);
        write(level, module, format_args!("{function}: {}: {error}", name(error.status() as i32)));
    }
}

/// The module and the name of the function that a closure belongs to.
fn split(closure: &'static str) -> (&'static str, &'static str) {
    let path = closure.split("::{{closure}}").next().unwrap_or(closure);
    path.rsplit_once("::").unwrap_or((module_path!(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of_type<F>(_: &F) -> &'static str {
        std::any::type_name::<F>()
    }

    #[test]
    fn a_closure_has_the_name_of_its_function() {
        let closure = |number: u64| number + 1;
        let inner = || (0..closure(0)).map(|number| number + 1);
        for name in [name_of_type(&closure), name_of_type(&inner)] {
            assert_eq!(
                split(name),
                ("kvmem::ffi::common::call_log::tests", "a_closure_has_the_name_of_its_function"),
                "{name}"
            );
        }
        assert_eq!(split("bare").1, "bare");
    }
}
