// SPDX-License-Identifier: Apache-2.0
//! What wakes the thread of an agent: a token after each command or task. One token represents all that wait.
//!
//! It does not poll before it sleeps, as a channel does: on processors that other threads keep busy, each poll takes
//! milliseconds.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::sync::{Condvar, Mutex};

/// A token, which is there or not.
#[derive(Default)]
pub struct Token {
    is_there: AtomicBool,
    sleeping: Mutex<()>,
    put: Condvar,
}

impl Token {
    /// Puts the token, and wakes a thread that waits for it.
    pub fn put(&self) {
        // Always written, so that the thread that takes the token sees what was sent before.
        if !self.is_there.swap(true, Ordering::AcqRel) {
            // A thread that has not found it is asleep once this has the lock.
            drop(self.sleeping.lock());
            self.put.notify_one();
        }
    }

    /// Takes the token, if it is there.
    pub fn take(&self) -> bool {
        self.is_there.swap(false, Ordering::AcqRel)
    }

    /// Waits for the token and takes it; without a limit for ever. False if the time is over.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        if self.take() {
            return true;
        }
        let end = limit.map(|limit| Instant::now() + limit);
        let mut sleeping = self.sleeping.lock();
        loop {
            if self.take() {
                return true;
            }
            sleeping = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.put.wait(sleeping),
                Some(Duration::ZERO) => return false,
                Some(left) => self.put.wait_timeout(sleeping, left).0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_token_represents_all() {
        let token = Token::default();
        assert!(!token.take() && !token.wait(Some(Duration::ZERO)));
        token.put();
        token.put();
        assert!(token.wait(None) && !token.take());
    }

    #[test]
    fn no_token_is_lost() {
        let (token, back) = (Arc::new(Token::default()), Arc::new(Token::default()));
        let echo = std::thread::spawn({
            let (token, back) = (token.clone(), back.clone());
            move || {
                for _ in 0..2000 {
                    assert!(token.wait(None));
                    back.put();
                }
            }
        });
        for _ in 0..2000 {
            token.put();
            assert!(back.wait(Some(Duration::from_secs(20))));
        }
        echo.join().unwrap();
    }
}
