// SPDX-License-Identifier: Apache-2.0
//! Copy rates of a device: the inputs of the cost model that differ from machine to machine.
#![forbid(unsafe_code)]

pub mod known;
pub mod measure;
pub mod measured;
pub mod observed;
pub mod peer;
pub mod saved;

use crate::copy::gpu::direction::CopyDirection;

/// The rates of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionRates {
    /// Bytes per second of one large copy by the driver.
    pub link: f64,
    /// Seconds per copy of a batch, of any size. For large copies, most of it overlaps with the transfer of the bytes.
    pub batched: f64,
    /// Bytes per second of the kernel, with as many CTAs as increase it.
    pub kernel: f64,
    /// Bytes per second of one CTA, if there are few.
    pub cta: f64,
}

/// Where rates come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Built in; measured on an H200 with PCIe 5 x16.
    #[default]
    Default,
    /// Measured on the device, in this process.
    Measured,
    /// Set by the caller.
    Loaded,
}

/// The copy rates of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Where they come from.
    pub source: Source,
    /// Number of rates that could not be measured, or were implausible, and were replaced by scaled defaults.
    pub num_defaults: u32,
    /// From page-locked host memory.
    pub to_device: DirectionRates,
    /// To page-locked host memory.
    pub to_host: DirectionRates,
    /// Within the device.
    pub on_device: DirectionRates,
    /// Between the device and the peer of one transfer, in its direction. Not a rate of the device alone.
    pub peer: DirectionRates,
    /// Bytes per second from host memory that is not page-locked.
    pub pageable: f64,
    /// Seconds of one copy by the driver, without the time for its bytes.
    pub copy: f64,
    /// Seconds from a launch until the kernel moves bytes.
    pub kernel_start: f64,
}

const US: f64 = 1e-6;

/// The rates of an H200 with PCIe 5 x16, and NVLink between GPUs.
pub const DEFAULT: Rates = Rates {
    source: Source::Default,
    num_defaults: 0,
    to_device: DirectionRates { link: 55.5e9, batched: 0.60 * US, kernel: 51.0e9, cta: 17.0e9 },
    to_host: DirectionRates { link: 55.5e9, batched: 0.57 * US, kernel: 52.3e9, cta: 26.0e9 },
    on_device: DirectionRates { link: 2065e9, batched: 3.1 * US, kernel: 1750e9, cta: 25e9 },
    peer: DirectionRates { link: 370e9, batched: 3.1 * US, kernel: 370e9, cta: 5.7e9 },
    pageable: 9e9,
    copy: 2.8 * US,
    kernel_start: 6.0 * US,
};

/// Plausible range of a rate, as factors of its expected value: minimum and maximum.
pub(super) type Bounds = [f64; 2];
/// Links from PCIe 3 x4 up to those between chips.
const LINKS: Bounds = [1.0 / 40.0, 20.0];
/// Durations of calls, which depend on host and driver.
const CALLS: Bounds = [1.0 / 8.0, 25.0];
/// A kernel, relative to its link. It is faster where the copy engines do not saturate the link, such as that of Grace and
/// Hopper. If it was far slower, other work occupied the device.
const KERNELS: Bounds = [0.2, 4.0];
/// One CTA, relative to the whole kernel.
const CTAS: Bounds = [0.001, 1.1];
/// The driver's copies through its own host memory, relative to the link.
const PAGEABLES: Bounds = [0.005, 1.1];

impl Rates {
    /// The rates of a direction.
    pub fn in_direction(&self, direction: CopyDirection) -> &DirectionRates {
        match direction {
            CopyDirection::ToDevice => &self.to_device,
            CopyDirection::ToHost => &self.to_host,
            CopyDirection::OnDevice => &self.on_device,
            CopyDirection::FromPeer | CopyDirection::ToPeer => &self.peer,
        }
    }

    /// Rates that the caller sets; 0 selects the default.
    pub fn loaded(mut given: Self) -> Self {
        let mut defaults = DEFAULT;
        for (figure, default) in given.figures().into_iter().zip(defaults.figures()) {
            if *figure == 0.0 {
                *figure = *default;
            }
        }
        Self { source: Source::Loaded, num_defaults: 0, peer: DEFAULT.peer, ..given }
    }

    /// Whether every rate is a positive number.
    #[cfg(test)]
    pub fn are_numbers(mut self) -> bool {
        self.figures().into_iter().all(|figure| figure.is_finite() && *figure > 0.0)
    }

    /// Replaces implausible rates by defaults; 0 stands for a rate that was not measured. Defaults are scaled with the
    /// measured link, because paths are compared with each other: a default kernel rate above the measured rate of its link would
    /// select the kernel for every transfer.
    pub fn plausible(measured: &Self) -> Self {
        let mut checked = Self { source: Source::Measured, ..DEFAULT };
        let mut check = Check::default();
        for (found, known, into) in [
            (&measured.to_device, &DEFAULT.to_device, &mut checked.to_device),
            (&measured.to_host, &DEFAULT.to_host, &mut checked.to_host),
            (&measured.on_device, &DEFAULT.on_device, &mut checked.on_device),
        ] {
            *into = check.direction(found, known, LINKS);
        }
        let link = checked.to_device.link;
        checked.pageable = check.near(measured.pageable, link, PAGEABLES, DEFAULT.pageable.min(link));
        checked.copy = check.near(measured.copy, DEFAULT.copy, CALLS, DEFAULT.copy);
        let start = DEFAULT.kernel_start;
        checked.kernel_start = check.near(measured.kernel_start, start, CALLS, start);
        if check.num_defaults == MEASURED_FIGURES {
            checked.source = Source::Default;
        }
        Self { num_defaults: check.num_defaults, ..checked }
    }

    /// All rates except those of a peer.
    pub fn figures(&mut self) -> [&mut f64; MEASURED_FIGURES as usize] {
        let [a, b, c, d] = self.to_device.figures();
        let [e, f, g, h] = self.to_host.figures();
        let [i, j, k, l] = self.on_device.figures();
        let Self { pageable, copy, kernel_start, .. } = self;
        [a, b, c, d, e, f, g, h, i, j, k, l, pageable, copy, kernel_start]
    }
}

/// Number of rates of a device, without those of a peer.
const MEASURED_FIGURES: u32 = 15;

impl DirectionRates {
    pub(super) fn figures(&mut self) -> [&mut f64; 4] {
        [&mut self.link, &mut self.batched, &mut self.kernel, &mut self.cta]
    }
}

/// Counts the rates that were replaced by defaults.
#[derive(Default)]
pub(super) struct Check {
    pub num_defaults: u32,
}

impl Check {
    fn near(&mut self, measured: f64, expected: f64, [least, most]: Bounds, default: f64) -> f64 {
        if measured.is_finite() && measured >= least * expected && measured <= most * expected {
            return measured;
        }
        self.num_defaults += 1;
        default
    }

    /// Checks the rates of a direction. `links` is the plausible range of its link, relative to `known`.
    pub fn direction(
        &mut self,
        found: &DirectionRates,
        known: &DirectionRates,
        links: Bounds,
    ) -> DirectionRates {
        let link = self.near(found.link, known.link, links, known.link);
        let scale = link / known.link;
        let kernel = self.near(found.kernel, link, KERNELS, known.kernel * scale);
        DirectionRates {
            link,
            batched: self.near(found.batched, known.batched, CALLS, known.batched),
            kernel,
            cta: self.near(found.cta, kernel, CTAS, known.cta.min(kernel)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_figure() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(0.0),
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(-1.0),
            (-9.0f64..14.0).prop_map(|exponent| 10f64.powf(exponent)),
        ]
    }

    fn any_rates() -> impl Strategy<Value = Rates> {
        prop::collection::vec(any_figure(), MEASURED_FIGURES as usize).prop_map(|values| {
            let mut rates = Rates::default();
            rates.figures().into_iter().zip(values).for_each(|(figure, value)| *figure = value);
            rates
        })
    }

    proptest! {
        #[test]
        fn rates_in_use_are_plausible_after_any_measurement(measured in any_rates()) {
            let rates = Rates::plausible(&measured);
            prop_assert!(rates.are_numbers());
            prop_assert_eq!(rates.peer, DEFAULT.peer);
            for direction in [rates.to_device, rates.to_host, rates.on_device] {
                prop_assert!(direction.kernel <= 4.0 * direction.link && direction.cta <= 1.1 * direction.kernel);
            }
            prop_assert!(rates.pageable <= 1.1 * rates.to_device.link);
            prop_assert_eq!(rates.source == Source::Default, rates.num_defaults == MEASURED_FIGURES);
        }

        #[test]
        fn rates_of_faster_and_slower_machines_are_accepted(factor in 0.05f64..8.0) {
            let mut measured = DEFAULT;
            let all = [&mut measured.to_device, &mut measured.to_host, &mut measured.on_device];
            for direction in all {
                direction.link *= factor;
                direction.kernel *= factor;
                direction.cta *= factor;
            }
            measured.pageable *= factor;
            let rates = Rates::plausible(&measured);
            prop_assert_eq!(rates, Rates { source: Source::Measured, ..measured });
        }
    }

    /// Links between chips: multiprocessors can outrun the copy engines.
    #[test]
    fn a_kernel_that_is_faster_than_the_copy_engines_is_plausible() {
        let mut measured = DEFAULT;
        measured.to_device = DirectionRates { link: 290e9, kernel: 410e9, ..DEFAULT.to_device };
        let rates = Rates::plausible(&measured);
        assert_eq!((rates.to_device.kernel, rates.num_defaults), (410e9, 0));
    }

    #[test]
    fn a_default_is_scaled_with_the_measured_link() {
        let mut measured = Rates::default();
        measured.to_host.link = DEFAULT.to_host.link / 2.0;
        let rates = Rates::plausible(&measured);
        assert_eq!(rates.to_host.kernel, DEFAULT.to_host.kernel / 2.0);
        assert_eq!(rates.to_device, DEFAULT.to_device);
        assert_eq!(rates.num_defaults, MEASURED_FIGURES - 1);
    }

    #[test]
    fn a_rate_that_the_caller_does_not_set_is_the_default() {
        let given = Rates { copy: 5e-6, ..Rates::default() };
        let expected = Rates { copy: 5e-6, source: Source::Loaded, ..DEFAULT };
        assert_eq!(Rates::loaded(given), expected);
    }
}
