// SPDX-License-Identifier: Apache-2.0
//! Regions: memory on a tier.

pub mod adopt;
pub mod config;
pub mod create;
pub mod elastic;
pub mod info;
