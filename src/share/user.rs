// SPDX-License-Identifier: Apache-2.0
//! Users of other processes. In a user namespace, the kernel shows all users that have no number there as one number.

use std::io::ErrorKind;

use crate::base::{Error, Result, ensure};

/// The numbers of users in this namespace.
const MAP: &str = "/proc/thread-self/uid_map";
/// The number of all users without one, unless the system has set another.
const DEFAULT_OVERFLOW: u32 = 65534;

/// Fails for a number that stands for several users here: then a user cannot be trusted by it.
pub fn ensure_unambiguous(user: u32) -> Result<()> {
    ensure!(
        user != overflow_user()? || maps_all_users()?,
        PermissionDenied,
        "in this user namespace the number {user} also stands for all users that have no number here ({MAP}), so the \
         user is not known; run the process as another user, or outside of the namespace"
    );
    Ok(())
}

fn overflow_user() -> Result<u32> {
    let text = text("/proc/sys/kernel/overflowuid")?;
    Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_OVERFLOW))
}

fn maps_all_users() -> Result<bool> {
    Ok(match text(MAP)? {
        Some(map) => is_complete(&map),
        // A kernel without user namespaces. Without /proc nothing is known.
        None => std::path::Path::new("/proc/thread-self").exists(),
    })
}

/// The text of a file, if it exists.
fn text(path: &str) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("read {path}, to distinguish users"), &error)),
    }
}

/// Whether a map has all numbers but the last, which no user has. Each line is a first number here, one outside, and a count.
fn is_complete(map: &str) -> bool {
    let counts = map.lines().map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    counts.flatten().sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_namespace_of_all_users_has_a_complete_map() {
        assert!(is_complete("         0          0 4294967295\n"));
        assert!(is_complete("0 100 2147483648\n2147483648 2147483748 2147483647\n"));
        for map in ["", "65534 1000 1\n", "0 100000 65536\n", "0 0 x\n", "0 0\n"] {
            assert!(!is_complete(map), "{map:?}");
        }
    }
}
