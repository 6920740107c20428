// SPDX-License-Identifier: Apache-2.0
//! How a broker is configured.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, ensure};

/// How a broker runs.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Where its socket lies.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The users that may fetch; none for the broker's own alone. Nobody else may, root included.
    pub users: Vec<u32>,
    /// The most clients at once.
    pub max_clients: usize,
    /// The most clients at once of one user; 0 for an equal part of `max_clients`.
    pub max_clients_per_user: usize,
    /// The most bytes of shares on their way to one user at once.
    pub max_bytes_per_user: u64,
    /// How long a client may take to ask, and again to read the answer.
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
        ensure!(self.mode & !0o777 == 0, InvalidArgument, "{:#o} are no permission bits", self.mode);
        let others = self.users.iter().any(|user| *user != own);
        ensure!(
            !others || self.mode & 0o022 != 0,
            InvalidArgument,
            "users {:?} may fetch, but a socket of mode {:#o} lets only its owner connect; ask for 0660 or 0666",
            self.users,
            self.mode
        );
        ensure!(self.max_clients > 0, InvalidArgument, "a broker with room for no client is of no use");
        if self.max_clients_per_user == 0 {
            self.max_clients_per_user = (self.max_clients / self.users.len()).max(1);
        }
        Ok(self)
    }
}
