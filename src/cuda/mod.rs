// SPDX-License-Identifier: Apache-2.0
//! CUDA: the driver, found at run time.

pub mod driver;
