// SPDX-License-Identifier: Apache-2.0
//! Random bytes of the kernel.

use crate::base::error::{Error, Result};
use crate::base::retried::getrandom;

/// Returns `N` of them.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..]).map_err(|errno| Error::errno("get random bytes", errno))?;
    }
    Ok(bytes)
}
