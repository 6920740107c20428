// SPDX-License-Identifier: Apache-2.0
//! The functions of NIXL: loading it, agents and their backends, registrations, metadata, layouts of peers, notifications,
//! directories, and requests on raw descriptors.

pub mod agent;
pub mod descriptors;
pub mod directory;
pub mod directory_entry;
pub mod directory_events;
pub mod directory_lookup;
pub mod directory_publication;
pub mod directory_watch;
pub mod layout;
pub mod load;
pub mod metadata;
pub mod notification;
pub mod options;
pub mod plugins;
pub mod prepared;
pub mod query;
pub mod registration;
pub mod request;
pub mod segments;
pub mod serve;
pub mod telemetry;
pub mod view;
