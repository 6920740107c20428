// SPDX-License-Identifier: Apache-2.0
//! Host names in addresses. NIXL takes IPv4 addresses only.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::base::{Result, Taken, ensure, error, fail, handoff, thread};

/// The longest wait for a name server.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The longest host name of DNS.
const MAX_NAME: usize = 253;

/// The IPv4 address of a host. A name is looked up by the C library, which has no limit for that: so a thread does it, and
/// ends later if the name server does not respond.
pub(super) fn resolved(host: &str, deadline: Option<Instant>) -> Result<Ipv4Addr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    ensure!(
        is_name(host),
        InvalidArgument,
        "'{host}' is not an IPv4 address, such as 127.0.0.1, and no host name"
    );
    let (found, result) = handoff();
    let name = host.to_string();
    let look_up = move || drop(found.give((name.as_str(), 0).to_socket_addrs().map(Vec::from_iter)));
    thread::spawn("kvmem-host", look_up).map_err(|error| error.context(format!("look up host '{host}'")))?;
    let limit = Instant::now() + MAX_WAIT;
    match result.take(Some(deadline.map_or(limit, |deadline| deadline.min(limit)))) {
        Taken::Value(Ok(addresses)) => {
            let first = addresses.iter().find_map(|address| match address.ip() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            first.ok_or_else(|| error!(NotFound, "host '{host}' has no IPv4 address, which NIXL needs"))
        }
        Taken::Value(Err(error)) => fail!(NotFound, "host '{host}' is not known: {error}"),
        Taken::TooLate => {
            fail!(TimedOut, "the name servers have not found host '{host}' in time")
        }
        Taken::Gone => fail!(Panic, "the thread that looks up host '{host}' ended"),
    }
}

/// Whether a text can be a host name. One of digits and dots is an address with a mistake.
fn is_name(host: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=MAX_NAME).contains(&host.len())
        && host.bytes().all(is_valid)
        && host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !host.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn a_look_up_ends_at_its_deadline() {
        let error = resolved("host.invalid", Some(Instant::now())).unwrap_err();
        assert!(matches!(error.status(), Status::TimedOut | Status::NotFound), "{error}");
    }
}
