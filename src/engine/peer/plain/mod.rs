// SPDX-License-Identifier: Apache-2.0
//! Requests with a descriptor for each contiguous span.

pub mod listed_requests;
pub mod request_plan;
