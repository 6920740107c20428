// SPDX-License-Identifier: Apache-2.0
//! How a broker is configured.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::{Result, Status, ensure};
use crate::share::user::ensure_unambiguous;

#[derive(Clone, Debug)]
pub struct BrokerConfig {
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The users that may fetch, and no others, not even root; an empty list means the broker's own user.
    pub users: Vec<u32>,
    /// The maximum number of clients at once.
    pub max_clients: usize,
    /// The maximum number of clients at once per user; 0 divides `max_clients` equally.
    pub max_clients_per_user: usize,
    /// The maximum number of bytes of shares in flight per user.
    pub max_bytes_per_user: u64,
    /// The timeout for a client's request, and for reading the reply.
    pub client_timeout: Duration,
}

impl BrokerConfig {
    /// The defaults, at a path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mode: 0o600,
            users: Vec::new(),
            max_clients: 256,
            max_clients_per_user: 0,
            max_bytes_per_user: 256 << 20,
            client_timeout: Duration::from_secs(10),
        }
    }

    pub(super) fn check(mut self) -> Result<Self> {
        let own = rustix::process::geteuid().as_raw();
        if self.users.is_empty() {
            self.users.push(own);
        }
        ensure!(
            self.mode & !0o777 == 0,
            InvalidArgument,
            "mode is 0{:o}; it must have the bits of permissions only, at most 0777, and is written in octal, such as 0600",
            self.mode
        );
        for user in &self.users {
            ensure_unambiguous(*user).map_err(|error| {
                error.context(format!("user {user} cannot be served")).with_status(Status::Unsupported)
            })?;
        }
        let others = self.users.iter().any(|user| *user != own);
        ensure!(
            !others || self.mode & 0o022 != 0,
            InvalidArgument,
            "users {:?} may fetch, but a socket of mode 0{:o} lets only its owner connect; use mode 0660 or 0666",
            self.users,
            self.mode
        );
        ensure!(self.max_clients > 0, InvalidArgument, "max_clients is 0, it must be at least 1");
        if self.max_clients_per_user == 0 {
            self.max_clients_per_user = (self.max_clients / self.users.len()).max(1);
        }
        Ok(self)
    }
}
