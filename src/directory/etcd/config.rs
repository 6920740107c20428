// SPDX-License-Identifier: Apache-2.0
//! How to reach etcd. Passwords and keys are in no message: [`EtcdConfig`] has no `Debug` form.

use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde_bytes::ByteBuf;

use super::protocol::Options;
use crate::base::{Error, Result, ensure, error, retried};
use crate::directory::entry::{MAX_BYTES, MAX_PRESENCE_BYTES};

/// The most bytes of a file of certificates or of a key.
const MAX_PEM: u64 = 1 << 20;
/// The longest lease, in seconds.
const MAX_LEASE: u32 = 3600;
/// The shortest one: the keeper renews it three times as often.
const MIN_LEASE: u32 = 2;
const DEFAULT_LEASE: u32 = 10;
const DEFAULT_PREFIX: &str = "kvmem";

#[derive(Clone, Default, PartialEq, Eq)]
pub struct EtcdConfig {
    /// URLs: http://host:port or https://host:port.
    pub endpoints: Vec<String>,
    /// What all keys begin with; empty for the default.
    pub prefix: String,
    /// A file with the certificates of authorities, in PEM.
    pub authority: Option<PathBuf>,
    /// Files with the certificate of this client and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    pub user: Option<(String, String)>,
    /// Seconds; 0 for the default.
    pub lease_seconds: u32,
}

impl EtcdConfig {
    /// Where entries are stored, for messages.
    pub fn location(&self) -> String {
        format!("etcd at {}, prefix '{}'", self.endpoints.join(", "), self.prefix())
    }

    fn prefix(&self) -> &str {
        if self.prefix.is_empty() { DEFAULT_PREFIX } else { &self.prefix }
    }

    /// Checks it, and reads its files.
    pub(super) fn options(&self) -> Result<Options> {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            // Not in the message: a URL can contain a password.
            ensure!(
                !endpoint.contains('@'),
                InvalidArgument,
                "endpoints[{index}] contains '@'; user and password are options of their own"
            );
            let is_secure = endpoint.starts_with("https://");
            ensure!(
                is_secure || endpoint.starts_with("http://"),
                InvalidArgument,
                "endpoint '{endpoint}' begins neither with http:// nor with https://"
            );
            ensure!(
                is_secure || (self.authority.is_none() && self.identity.is_none()),
                InvalidArgument,
                "endpoint '{endpoint}' is not encrypted, and TLS files are set; use https://"
            );
            ensure!(
                !is_secure || self.authority.is_some(),
                InvalidArgument,
                "endpoint '{endpoint}' needs ca_file: the certificates of the authorities that sign the certificate of the \
                 server"
            );
        }
        let prefix = self.prefix().trim_matches('/');
        ensure!(
            !prefix.is_empty() && prefix.len() <= 200 && !prefix.chars().any(char::is_control),
            InvalidArgument,
            "prefix has {} bytes, or control characters; it must have 1 to 200 bytes apart from '/' at its ends",
            prefix.len()
        );
        let lease = if self.lease_seconds == 0 { DEFAULT_LEASE } else { self.lease_seconds };
        ensure!(
            (MIN_LEASE..=MAX_LEASE).contains(&lease),
            InvalidArgument,
            "lease_seconds is {lease}; it must be {MIN_LEASE} to {MAX_LEASE}"
        );
        let identity = match &self.identity {
            Some((certificate, key)) => Some((pem(certificate)?, pem(key)?)),
            None => None,
        };
        Ok(Options {
            endpoints: self.endpoints.clone(),
            prefix: prefix.to_string(),
            authority: self.authority.as_deref().map(pem).transpose()?,
            identity,
            user: self.user.clone(),
            lease_seconds: lease,
            max_bytes: (MAX_PRESENCE_BYTES, MAX_BYTES),
        })
    }
}

/// Reads a file of a limited size, which may be no pipe.
fn pem(path: &Path) -> Result<ByteBuf> {
    let failed = |errno| Error::errno(format!("read {}", path.display()), errno);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = retried::open(path, flags, Mode::empty()).map_err(failed)?;
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(MAX_PEM + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error!(Io, "read {}: {error}", path.display()))?;
    ensure!(
        bytes.len() as u64 <= MAX_PEM && bytes.windows(11).any(|window| window == b"-----BEGIN "),
        InvalidArgument,
        "{} has no PEM block, or more than {MAX_PEM} bytes",
        path.display()
    );
    Ok(ByteBuf::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    fn config(endpoint: &str) -> EtcdConfig {
        EtcdConfig { endpoints: vec![endpoint.to_string()], ..EtcdConfig::default() }
    }

    /// The message with which options are refused.
    fn refusal(config: &EtcdConfig) -> String {
        let error = config.options().err().expect("options that are refused");
        assert_eq!(error.status(), Status::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn defaults_are_filled_in() {
        let options = config("http://127.0.0.1:1").options().unwrap();
        assert_eq!((options.prefix.as_str(), options.lease_seconds), ("kvmem", 10));
        let slashes = EtcdConfig { prefix: "/a/b/".to_string(), ..config("http://x:1") };
        assert_eq!(slashes.options().unwrap().prefix, "a/b");
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        let text = refusal(&config("http://root:secret@127.0.0.1:1"));
        assert!(!text.contains("secret") && text.contains("'@'"), "{text}");
    }

    #[test]
    fn bad_options_are_refused() {
        assert!(refusal(&config("127.0.0.1:1")).contains("http://"));
        assert!(refusal(&config("https://127.0.0.1:1")).contains("ca_file"));
        let with_files = EtcdConfig { authority: Some("/x".into()), ..config("http://x:1") };
        assert!(refusal(&with_files).contains("use https://"));
        for lease_seconds in [1, 3601, u32::MAX] {
            assert!(refusal(&EtcdConfig { lease_seconds, ..config("http://x:1") }).contains("lease_seconds"));
        }
        for prefix in ["/", "a\nb", &"x".repeat(201)] {
            let config = EtcdConfig { prefix: prefix.to_string(), ..config("http://x:1") };
            assert!(refusal(&config).contains("prefix"));
        }
    }
}
