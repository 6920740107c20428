// SPDX-License-Identifier: Apache-2.0
//! What all tests of the crate have in common.

// Miri has no handlers of signals.
#[cfg(not(miri))]
mod crash_report;
