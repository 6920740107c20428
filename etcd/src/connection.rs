// SPDX-License-Identifier: Apache-2.0
//! Connects to one endpoint: the first whose server responds. A channel that is balanced over all of them would send requests to a
//! server that does not respond, again and again.

#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::protocol::{Failure, Options};
use crate::session::{Result, late, limited, status};

/// A connection is given up if the server does not respond to pings for this long.
const PING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));
const CONNECT: Duration = Duration::from_secs(5);
/// No connection takes longer, with any number of endpoints.
const MAX_CONNECT: Duration = Duration::from_secs(10);
/// The wait for a server before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// The endpoint that a client tries first, so that clients with the same endpoints use all of their servers.
pub fn any_endpoint(options: &Options) -> usize {
    (RandomState::new().hash_one(0) % options.endpoints.len().max(1) as u64) as usize
}

/// Connects, and checks that the server responds: it counts the keys that begin with `prefix`. Tries the endpoint with this index first.
/// Returns the index of the endpoint that has responded.
pub async fn connect(options: &Options, prefix: &str, first: usize) -> Result<(Client, usize)> {
    timeout(MAX_CONNECT, race(options, prefix, first)).await.unwrap_or_else(|_| Err(late(MAX_CONNECT)))
}

async fn race(options: &Options, prefix: &str, first: usize) -> Result<(Client, usize)> {
    let connect = connect_options(options);
    let count = options.endpoints.len();
    let mut left = (first..first + count).map(|index| index % count);
    let mut attempts = JoinSet::new();
    let mut refusal: Option<Failure> = None;
    loop {
        if let Some(index) = left.next() {
            let attempt = attempt(options.endpoints[index].clone(), connect.clone(), prefix.to_string());
            attempts.spawn_local(async move { attempt.await.map(|client| (client, index)) });
        }
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(connected)) => return Ok(connected),
                // What a server says explains more than that another one does not respond.
                Ok(Err(failure)) if refusal.as_ref().is_none_or(is_silence) => refusal = Some(failure),
                Ok(Err(_)) => {}
                Err(bug) => std::panic::resume_unwind(bug.into_panic()),
            },
            () = sleep(STAGGER), if left.len() > 0 => {}
            else => return Err(refusal.unwrap_or_else(|| late(Duration::ZERO))),
        }
    }
}

fn is_silence(failure: &Failure) -> bool {
    matches!(failure.status, status::IO | status::TIMED_OUT)
}

async fn attempt(endpoint: String, connect: ConnectOptions, prefix: String) -> Result<Client> {
    let client = limited(CONNECT, Client::connect([endpoint], Some(connect))).await?;
    // The channel connects when it is first used.
    let count = GetOptions::new().with_prefix().with_count_only();
    limited(CONNECT, client.kv_client().get(prefix, Some(count))).await?;
    Ok(client)
}

fn connect_options(options: &Options) -> ConnectOptions {
    let mut connect = ConnectOptions::new()
        .with_keep_alive(PING.0, PING.1)
        .with_keep_alive_while_idle(true)
        .with_connect_timeout(CONNECT)
        .with_auto_token_refresh(true)
        // A server that has lost its cluster would otherwise report no changes, and not that there may be some.
        .with_require_leader(true);
    if let Some((user, password)) = &options.user {
        connect = connect.with_user(user.clone(), password.clone());
    }
    if options.endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
        let mut tls = TlsOptions::new();
        if let Some(authority) = &options.authority {
            tls = tls.ca_certificate(Certificate::from_pem(authority.as_slice()));
        }
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(certificate.as_slice(), key.as_slice()));
        }
        connect = connect.with_tls(tls);
    }
    connect
}
