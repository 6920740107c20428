// SPDX-License-Identifier: Apache-2.0
//! Parameters with which NIXL's plugin OBJ never ends a request, or the call that creates the backend. They are refused before the
//! plugin gets them. Measured with NIXL 1.5.

use std::collections::BTreeMap;

use super::backend::leading_number;
use crate::base::{Result, ensure, thread};

pub(super) const PLUGIN: &str = "OBJ";
/// The parameter for the number of its threads.
const THREADS: &str = "num_threads";
/// More than any store needs. The plugin starts them all when the backend is created.
const MAX_THREADS: usize = 4096;

/// Fails if the plugin would have no thread for requests, or could not start its threads: it waits for ever then.
pub(super) fn ensure_parameters(parameters: &BTreeMap<String, String>) -> Result<()> {
    let count = match parameters.get(THREADS).and_then(|value| number_of(value)) {
        Some(count) => {
            ensure!(
                (1..=MAX_THREADS).contains(&count),
                InvalidArgument,
                "the parameter {THREADS} is {count}; it must be 1 to {MAX_THREADS}, the number of requests that the plugin {PLUGIN} \
                 executes at a time"
            );
            count
        }
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    thread::ensure_startable(count, 0).map_err(|error| {
        let error = error.context(format!("start {count} threads for the plugin {PLUGIN}"));
        error.followed_by(format!("or set the parameter {THREADS} to fewer"))
    })
}

/// The number that a value begins with, as the plugin reads it; `None` for a value that the plugin rejects.
fn number_of(value: &str) -> Option<usize> {
    let value = value.trim_start();
    let number = leading_number(value.strip_prefix('+').unwrap_or(value))?;
    Some(usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Error, Status};

    #[test]
    fn a_plugin_without_threads_is_refused() {
        let zero = Some(Status::InvalidArgument);
        for (value, expected) in [
            ("0", zero),
            (" 00", zero),
            ("+0x8", zero),
            ("100000", zero),
            ("99999999999999999999", zero),
            ("1", None),
            ("16 threads", None),
            ("", None),
            ("-1", None),
            ("many", None),
        ] {
            let parameters = BTreeMap::from([(THREADS.to_string(), value.to_string())]);
            let outcome = ensure_parameters(&parameters);
            assert_eq!(outcome.as_ref().err().map(Error::status), expected, "{value}");
            assert!(outcome.err().is_none_or(|error| error.message().contains(THREADS)));
        }
        assert!(ensure_parameters(&BTreeMap::new()).is_ok());
    }
}
