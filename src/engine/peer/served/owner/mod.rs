// SPDX-License-Identifier: Apache-2.0
//! The owner's side: admits sessions, gathers in the arena what a peer reads, and scatters what it has written.

mod admission;
pub mod serve;
mod session;
