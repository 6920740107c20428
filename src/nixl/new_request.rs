// SPDX-License-Identifier: Apache-2.0
//! Requests on raw descriptors that are to be created.

use super::arguments::CallOptions;
use super::descriptors::Descriptors;
use super::request_handle::{ListId, Operation};

/// A request on raw descriptors that is to be created.
pub struct NewRequest {
    pub operation: Operation,
    pub local: Descriptors,
    pub remote: Descriptors,
    /// Where NIXL finds the descriptors.
    pub source: RequestSource,
    pub options: CallOptions,
    pub names_storage: bool,
}

/// Where NIXL finds the descriptors of a new request.
pub enum RequestSource {
    /// It lists them for this request. The remote side is memory of the agent of this name.
    Owner(String),
    /// In prepared lists, at these indices, which are in range.
    Prepared([(ListId, Vec<i32>); 2]),
}
