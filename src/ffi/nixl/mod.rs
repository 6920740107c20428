// SPDX-License-Identifier: Apache-2.0
//! The functions of NIXL: loading it, agents, notifications, registrations.

pub mod agent;
pub mod load;
pub mod notification;
pub mod registration;
