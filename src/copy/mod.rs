// SPDX-License-Identifier: Apache-2.0
//! Rows and elements copied once, by the host or by a GPU. No runs, and no choice of a method.

pub mod gpu;
pub mod host;
pub mod pieces;
pub mod remainder;
