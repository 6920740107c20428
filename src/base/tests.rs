// SPDX-License-Identifier: Apache-2.0
//! What all tests of the crate have in common.

mod crash_report;
