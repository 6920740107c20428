// SPDX-License-Identifier: Apache-2.0
//! Copy rates between a device, which executes the copies, and a peer. Pure.
#![forbid(unsafe_code)]

use super::{Bounds, Check, DEFAULT, DirectionRates, Rates, Source};
use crate::copy::gpu::direction::CopyDirection;

/// The copy rates between a device and a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerRates {
    /// Where they come from.
    pub source: Source,
    /// Number of rates that could not be measured, or were implausible, and were replaced by scaled defaults.
    pub num_defaults: u32,
    /// From the peer.
    pub read: DirectionRates,
    /// To the peer.
    pub write: DirectionRates,
}

/// Links from copies that the driver passes through the host, over few lanes of PCIe, up to links faster than an H200's.
const LINKS: Bounds = [1.0 / 400.0, 10.0];
const FIGURES: u32 = 8;

impl PeerRates {
    /// The device's rates, with those of the peer in the direction of a transfer.
    pub fn complete(&self, device: Rates, direction: CopyDirection) -> Rates {
        let peer = if direction == CopyDirection::ToPeer { self.write } else { self.read };
        Rates { peer, ..device }
    }

    /// Rates that the caller sets; 0 selects the default.
    pub fn loaded(mut given: Self) -> Self {
        let mut known = DEFAULT.peer;
        for direction in [&mut given.read, &mut given.write] {
            for (figure, default) in direction.figures().into_iter().zip(known.figures()) {
                if *figure == 0.0 {
                    *figure = *default;
                }
            }
        }
        Self { source: Source::Loaded, num_defaults: 0, ..given }
    }

    /// All rates.
    pub fn figures(&mut self) -> [&mut f64; FIGURES as usize] {
        let [a, b, c, d] = self.read.figures();
        let [e, f, g, h] = self.write.figures();
        [a, b, c, d, e, f, g, h]
    }

    /// Replaces implausible rates by defaults; 0 stands for a rate that was not measured.
    pub fn plausible(measured: &Self) -> Self {
        let mut check = Check::default();
        let [read, write] =
            [&measured.read, &measured.write].map(|found| check.direction(found, &DEFAULT.peer, LINKS));
        let num_defaults = check.num_defaults;
        let source = if num_defaults == FIGURES { Source::Default } else { Source::Measured };
        Self { source, num_defaults, read, write }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_its_own_rates() {
        let slow = DirectionRates { link: 20e9, kernel: 10e9, ..DEFAULT.peer };
        let rates =
            PeerRates::plausible(&PeerRates { read: DEFAULT.peer, write: slow, ..PeerRates::default() });
        assert_eq!((rates.source, rates.num_defaults), (Source::Measured, 0));
        assert_eq!(rates.complete(DEFAULT, CopyDirection::FromPeer), DEFAULT);
        assert_eq!(rates.complete(DEFAULT, CopyDirection::ToPeer), Rates { peer: slow, ..DEFAULT });
    }

    #[test]
    fn a_slow_link_through_the_host_is_accepted_and_its_kernel_rate_is_a_default() {
        let staged = DirectionRates { link: 2e9, batched: 9e-6, ..DirectionRates::default() };
        let rates = PeerRates::plausible(&PeerRates { read: staged, write: staged, ..PeerRates::default() });
        assert_eq!((rates.source, rates.num_defaults), (Source::Measured, 4));
        assert_eq!((rates.read.link, rates.read.batched), (2e9, 9e-6));
        assert!(rates.read.kernel <= 4.0 * rates.read.link);
    }

    #[test]
    fn a_rate_that_the_caller_does_not_set_is_the_default() {
        let given = PeerRates {
            write: DirectionRates { link: 1e9, ..DirectionRates::default() },
            ..PeerRates::default()
        };
        let rates = PeerRates::loaded(given);
        assert_eq!((rates.source, rates.read), (Source::Loaded, DEFAULT.peer));
        assert_eq!(rates.write, DirectionRates { link: 1e9, ..DEFAULT.peer });
    }
}
