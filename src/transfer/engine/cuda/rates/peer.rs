// SPDX-License-Identifier: Apache-2.0
//! What copies between a device and a peer of it cost, where the device does the work. Pure.
#![forbid(unsafe_code)]

use super::super::direction::Direction;
use super::{Bounds, Check, DEFAULT, DirectionRates, Rates, Source};

/// What copies between a device and a peer cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerRates {
    /// Where these come from.
    pub source: Source,
    /// Figures that could not be measured, and are defaults or follow from others by the defaults' proportions.
    pub num_defaults: u32,
    /// From the peer.
    pub read: DirectionRates,
    /// To the peer.
    pub write: DirectionRates,
}

/// From what the driver passes through the host, on few lanes of PCIe, up to links between chips of more speed than
/// those of an H200.
const LINKS: Bounds = [1.0 / 400.0, 10.0];
const FIGURES: u32 = 8;

impl PeerRates {
    /// The device's figures, with those of the peer for the way that a transfer goes.
    pub fn complete(&self, device: Rates, direction: Direction) -> Rates {
        let peer = if direction == Direction::ToPeer { self.write } else { self.read };
        Rates { peer, ..device }
    }

    /// What a caller gives, with the defaults for what is 0.
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

    /// All figures.
    pub fn figures(&mut self) -> [&mut f64; FIGURES as usize] {
        let [a, b, c, d] = self.read.figures();
        let [e, f, g, h] = self.write.figures();
        [a, b, c, d, e, f, g, h]
    }

    /// What was measured as far as it can be; 0 stands for what was not.
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
    fn each_way_has_its_own_figures() {
        let slow = DirectionRates { link: 20e9, kernel: 10e9, ..DEFAULT.peer };
        let rates =
            PeerRates::plausible(&PeerRates { read: DEFAULT.peer, write: slow, ..PeerRates::default() });
        assert_eq!((rates.source, rates.num_defaults), (Source::Measured, 0));
        assert_eq!(rates.complete(DEFAULT, Direction::FromPeer), DEFAULT);
        assert_eq!(rates.complete(DEFAULT, Direction::ToPeer), Rates { peer: slow, ..DEFAULT });
    }

    #[test]
    fn what_the_driver_passes_through_the_host_is_believed_and_its_kernel_a_default() {
        let staged = DirectionRates { link: 2e9, batched: 9e-6, ..DirectionRates::default() };
        let rates = PeerRates::plausible(&PeerRates { read: staged, write: staged, ..PeerRates::default() });
        assert_eq!((rates.source, rates.num_defaults), (Source::Measured, 4));
        assert_eq!((rates.read.link, rates.read.batched), (2e9, 9e-6));
        assert!(rates.read.kernel <= 1.1 * rates.read.link);
    }

    #[test]
    fn what_a_caller_leaves_out_is_the_default() {
        let given = PeerRates {
            write: DirectionRates { link: 1e9, ..DirectionRates::default() },
            ..PeerRates::default()
        };
        let rates = PeerRates::loaded(given);
        assert_eq!((rates.source, rates.read), (Source::Loaded, DEFAULT.peer));
        assert_eq!(rates.write, DirectionRates { link: 1e9, ..DEFAULT.peer });
    }
}
