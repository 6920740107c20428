// SPDX-License-Identifier: Apache-2.0
//! The one way the library says something unasked: a callback the caller installs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

/// How much a message matters; a callback gets its own level and those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed that no return value could tell.
    Error = 1,
    /// Something works, but not as well as asked.
    Warn = 2,
    /// A milestone: a library loaded, a backend made.
    Info = 3,
    /// One line an operation.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// What a caller installs. It may be called from any thread, never with a lock of ours held.
pub type Sink = Arc<dyn Fn(Level, &str, &str) + Send + Sync>;

static LEVEL: AtomicU32 = AtomicU32::new(0);
static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Installs the sink for messages up to `level`, or removes it.
pub fn set_sink(level: u32, sink: Option<Sink>) {
    let enabled = if sink.is_some() { level } else { 0 };
    *SINK.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = sink;
    LEVEL.store(enabled, Ordering::Release);
}

/// Whether a message of this level would go anywhere.
pub fn enabled(level: Level) -> bool {
    level as u32 <= LEVEL.load(Ordering::Acquire)
}

/// Hands a message to the sink.
pub fn write(level: Level, target: &str, message: &str) {
    let sink = SINK.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    if let Some(sink) = sink {
        sink(level, target, message);
    }
}

/// Logs a formatted message; nothing is formatted when nobody listens.
macro_rules! log {
    ($level:ident, $($message:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, module_path!(), &format!($($message)+));
        }
    };
}
pub(crate) use log;
