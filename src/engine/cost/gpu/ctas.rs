// SPDX-License-Identifier: Apache-2.0
//! The number of CTAs of a kernel that runs beside compute, by the measured rates of the link. Pure.

use crate::copy::gpu::CopyDirection;
use crate::copy::gpu::launch::{SMALL, ctas};
use crate::copy::gpu::rates::DirectionRates;

/// The rate of all CTAs beside compute, relative to that of the kernel alone.
pub const MAX_BESIDE: f64 = 0.9;

/// The rate of one CTA beside compute, relative to one alone, for moves of `move_size` bytes. Measured on H200.
pub fn cta_share_beside(direction: CopyDirection, move_size: u64) -> f64 {
    match direction {
        CopyDirection::ToDevice => 8.0 / 17.0,
        CopyDirection::ToHost if move_size < SMALL => 9.5 / 26.0,
        CopyDirection::ToHost => 12.0 / 26.0,
        _ => 1.0,
    }
}

/// Number of CTAs between host and device beside compute: those of [`ctas`], or as many as the link needs by its measured
/// rates. Links between chips, such as that of Grace and Hopper, need more than PCIe.
pub fn ctas_beside(
    direction: CopyDirection,
    multiprocessors: u32,
    move_size: u64,
    rates: &DirectionRates,
) -> u32 {
    let usual = ctas(direction, true, multiprocessors, move_size);
    let needed = MAX_BESIDE * rates.kernel / (cta_share_beside(direction, move_size) * rates.cta);
    // The cast turns values that are no number into 0.
    usual.max((needed.ceil() as u32).min(multiprocessors / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::gpu::launch::UNNOTICED;
    use crate::copy::gpu::rates::DEFAULT;

    #[test]
    fn beside_compute_a_faster_link_gets_more_ctas() {
        for (direction, move_size, usual) in [
            (CopyDirection::ToDevice, 64 << 10, 6),
            (CopyDirection::ToHost, 64 << 10, UNNOTICED),
            (CopyDirection::ToHost, 4 << 10, UNNOTICED + 1),
        ] {
            let pcie = *DEFAULT.in_direction(direction);
            assert_eq!(ctas_beside(direction, 132, move_size, &pcie), usual, "{direction:?}");
            let between_chips = DirectionRates { link: 380e9, kernel: 400e9, ..pcie };
            let given = ctas_beside(direction, 132, move_size, &between_chips);
            let reached = f64::from(given) * cta_share_beside(direction, move_size) * pcie.cta;
            assert!(given == 66 || reached >= MAX_BESIDE * between_chips.kernel, "{direction:?}: {given}");
            let unknown = DirectionRates { cta: 0.0, ..pcie };
            assert!(ctas_beside(direction, 132, move_size, &unknown) <= 66);
        }
    }
}
