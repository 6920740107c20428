// SPDX-License-Identifier: Apache-2.0
//! The functions of NIXL: loading it, agents, registrations, metadata, layouts of peers, notifications.

pub mod agent;
pub mod layout;
pub mod load;
pub mod metadata;
pub mod notification;
pub mod registration;
