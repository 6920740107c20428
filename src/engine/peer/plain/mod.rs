// SPDX-License-Identifier: Apache-2.0
//! Requests with a descriptor for each contiguous span.
#![forbid(unsafe_code)]

pub mod listed_requests;
pub mod request_plan;
