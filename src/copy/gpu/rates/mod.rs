// SPDX-License-Identifier: Apache-2.0
//! Copy rates of a device, or of a device and a peer: the inputs of the cost model that differ from machine to machine.

pub mod measure;
pub mod measured;
pub mod saved;

use crate::copy::gpu::direction::CopyDirection;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A device, and host memory.
    Device,
    /// A device, which executes the copies, and a peer.
    Pair,
}

/// The copy rates of a device, and those between it and the peer of one transfer. Those of one scope are measured, set and saved
/// together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub source: Source,
    /// Number of rates that could not be measured, or were implausible, and were replaced by scaled defaults.
    pub num_defaults: u32,
    /// From page-locked host memory.
    pub to_device: DirectionRates,
    pub to_host: DirectionRates,
    pub on_device: DirectionRates,
    pub from_peer: DirectionRates,
    pub to_peer: DirectionRates,
    /// Bytes per second from host memory that is not page-locked.
    pub pageable: f64,
    /// Seconds of one copy by the driver, without the time for its bytes.
    pub copy: f64,
    /// Seconds from a launch until the kernel moves bytes.
    pub kernel_start: f64,
}

const US: f64 = 1e-6;

const NVLINK: DirectionRates = DirectionRates { link: 370e9, batched: 3.1 * US, kernel: 370e9, cta: 5.7e9 };

/// The CPU time of a copy from the host, relative to that of one to the host in a batch, and to the measured one if each copy is a call.
pub const FROM_HOST: f64 = 1.2;

/// The rates of an H200 with PCIe 5 x16, and NVLink between GPUs.
pub const DEFAULT: Rates = Rates {
    source: Source::Default,
    num_defaults: 0,
    to_device: DirectionRates { link: 55.5e9, batched: FROM_HOST * 0.57 * US, kernel: 51.0e9, cta: 17.0e9 },
    to_host: DirectionRates { link: 55.5e9, batched: 0.57 * US, kernel: 52.3e9, cta: 26.0e9 },
    on_device: DirectionRates { link: 2065e9, batched: 3.1 * US, kernel: 1750e9, cta: 25e9 },
    from_peer: NVLINK,
    to_peer: NVLINK,
    pageable: 9e9,
    copy: 2.8 * US,
    kernel_start: 6.0 * US,
};

/// Plausible range of a rate, as factors of its expected value: minimum and maximum.
type Bounds = [f64; 2];
/// Links from PCIe 3 x4 up to those between chips.
const LINKS: Bounds = [1.0 / 40.0, 20.0];
/// Links between GPUs, from copies that the driver passes through the host, over few lanes of PCIe, up to links faster than an H200's.
const PEER_LINKS: Bounds = [1.0 / 400.0, 10.0];
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
    pub fn in_direction(&self, direction: CopyDirection) -> &DirectionRates {
        match direction {
            CopyDirection::ToDevice => &self.to_device,
            CopyDirection::ToHost => &self.to_host,
            CopyDirection::OnDevice => &self.on_device,
            CopyDirection::FromPeer => &self.from_peer,
            CopyDirection::ToPeer => &self.to_peer,
        }
    }

    /// The rates of a device with those of a peer.
    pub fn with_peer(self, pair: &Self) -> Self {
        Self { from_peer: pair.from_peer, to_peer: pair.to_peer, ..self }
    }

    /// The same if the CPU takes so many times as long for copies of batches to the device, and to the host.
    pub fn submitting(mut self, [to_device, to_host]: [f64; 2]) -> Self {
        self.to_device.batched *= to_device;
        self.to_host.batched *= to_host;
        self
    }

    /// Rates that the caller sets; 0 selects the default.
    pub fn loaded(mut given: Self, scope: Scope) -> Self {
        let mut loaded = Self { source: Source::Loaded, ..DEFAULT };
        for (figure, given) in loaded.figures(scope).into_iter().zip(given.figures(scope)) {
            if *given != 0.0 {
                *figure = *given;
            }
        }
        loaded
    }

    /// Whether every rate is a positive number.
    #[cfg(test)]
    pub fn are_numbers(mut self) -> bool {
        let is_number = |figure: &mut f64| figure.is_finite() && *figure > 0.0;
        [Scope::Device, Scope::Pair].into_iter().all(|scope| self.figures(scope).into_iter().all(is_number))
    }

    /// Replaces implausible rates by defaults; 0 stands for a rate that was not measured. Defaults are scaled with the
    /// measured link, because methods are compared with each other: a default kernel rate above the measured rate of its link would
    /// select the kernel for every transfer.
    pub fn plausible(measured: &Self, scope: Scope) -> Self {
        let mut checked = Self { source: Source::Measured, ..DEFAULT };
        let mut check = Check::default();
        match scope {
            Scope::Device => {
                checked.to_device = check.direction(&measured.to_device, &DEFAULT.to_device, LINKS);
                checked.to_host = check.direction(&measured.to_host, &DEFAULT.to_host, LINKS);
                checked.on_device = check.direction(&measured.on_device, &DEFAULT.on_device, LINKS);
                let link = checked.to_device.link;
                checked.pageable = check.near(measured.pageable, link, PAGEABLES, DEFAULT.pageable.min(link));
                checked.copy = check.near(measured.copy, DEFAULT.copy, CALLS, DEFAULT.copy);
                let start = DEFAULT.kernel_start;
                checked.kernel_start = check.near(measured.kernel_start, start, CALLS, start);
            }
            Scope::Pair => {
                checked.from_peer = check.direction(&measured.from_peer, &NVLINK, PEER_LINKS);
                checked.to_peer = check.direction(&measured.to_peer, &NVLINK, PEER_LINKS);
            }
        }
        checked.num_defaults = check.num_defaults;
        if check.num_defaults as usize == checked.figures(scope).len() {
            checked.source = Source::Default;
        }
        checked
    }

    pub fn figures(&mut self, scope: Scope) -> Vec<&mut f64> {
        let Self { to_device, to_host, on_device, from_peer, to_peer, pageable, copy, kernel_start, .. } =
            self;
        let (directions, others) = match scope {
            Scope::Device => (vec![to_device, to_host, on_device], vec![pageable, copy, kernel_start]),
            Scope::Pair => (vec![from_peer, to_peer], vec![]),
        };
        directions.into_iter().flat_map(DirectionRates::figures).chain(others).collect()
    }
}

impl DirectionRates {
    fn figures(&mut self) -> [&mut f64; 4] {
        [&mut self.link, &mut self.batched, &mut self.kernel, &mut self.cta]
    }
}

/// Counts the rates that were replaced by defaults.
#[derive(Default)]
struct Check {
    num_defaults: u32,
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
    fn direction(&mut self, found: &DirectionRates, known: &DirectionRates, links: Bounds) -> DirectionRates {
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

    const SCOPES: [Scope; 2] = [Scope::Device, Scope::Pair];

    fn any_rates() -> impl Strategy<Value = Rates> {
        prop::collection::vec(any_figure(), 23).prop_map(|values| {
            let (mut rates, mut values) = (Rates::default(), values.into_iter());
            for scope in SCOPES {
                rates.figures(scope).into_iter().zip(&mut values).for_each(|(figure, value)| *figure = value);
            }
            rates
        })
    }

    proptest! {
        #[test]
        fn rates_in_use_are_plausible_after_any_measurement(measured in any_rates()) {
            for scope in SCOPES {
                let mut rates = Rates::plausible(&measured, scope);
                prop_assert!(rates.are_numbers());
                let all = [rates.to_device, rates.to_host, rates.on_device, rates.from_peer, rates.to_peer];
                for direction in all {
                    prop_assert!(
                        direction.kernel <= 4.0 * direction.link && direction.cta <= 1.1 * direction.kernel
                    );
                }
                prop_assert!(rates.pageable <= 1.1 * rates.to_device.link);
                let all_are_defaults = rates.num_defaults as usize == rates.figures(scope).len();
                prop_assert_eq!(rates.source == Source::Default, all_are_defaults);
            }
        }

        #[test]
        fn rates_of_faster_and_slower_machines_are_accepted(factor in 0.05f64..8.0) {
            let mut measured = DEFAULT;
            let all = [&mut measured.to_device, &mut measured.to_host, &mut measured.on_device];
            for direction in all.into_iter().chain([&mut measured.from_peer, &mut measured.to_peer]) {
                direction.link *= factor;
                direction.kernel *= factor;
                direction.cta *= factor;
            }
            measured.pageable *= factor;
            for scope in SCOPES {
                let mut rates = Rates::plausible(&measured, scope);
                prop_assert_eq!((rates.source, rates.num_defaults), (Source::Measured, 0));
                prop_assert_eq!(rates.figures(scope), measured.figures(scope));
            }
        }
    }

    /// Links between chips: multiprocessors can outrun the copy engines.
    #[test]
    fn a_kernel_that_is_faster_than_the_copy_engines_is_plausible() {
        let mut measured = DEFAULT;
        measured.to_device = DirectionRates { link: 290e9, kernel: 410e9, ..DEFAULT.to_device };
        let rates = Rates::plausible(&measured, Scope::Device);
        assert_eq!((rates.to_device.kernel, rates.num_defaults), (410e9, 0));
    }

    #[test]
    fn a_default_is_scaled_with_the_measured_link() {
        let mut measured = Rates::default();
        measured.to_host.link = DEFAULT.to_host.link / 2.0;
        let rates = Rates::plausible(&measured, Scope::Device);
        assert_eq!(rates.to_host.kernel, DEFAULT.to_host.kernel / 2.0);
        assert_eq!((rates.to_device, rates.num_defaults), (DEFAULT.to_device, 14));
    }

    #[test]
    fn a_slow_link_through_the_host_is_accepted_and_its_kernel_rate_is_a_default() {
        let through_host = DirectionRates { link: 2e9, batched: 9e-6, ..DirectionRates::default() };
        let measured = Rates { from_peer: through_host, to_peer: NVLINK, ..Rates::default() };
        let Rates { source, num_defaults, from_peer, to_peer, .. } = Rates::plausible(&measured, Scope::Pair);
        assert_eq!((source, num_defaults, to_peer), (Source::Measured, 2, NVLINK));
        assert_eq!((from_peer.link, from_peer.batched), (2e9, 9e-6));
        assert!(from_peer.kernel <= 4.0 * from_peer.link);
    }

    #[test]
    fn a_rate_that_the_caller_does_not_set_is_the_default() {
        let given = Rates { copy: 5e-6, ..Rates::default() };
        let expected = Rates { copy: 5e-6, source: Source::Loaded, ..DEFAULT };
        assert_eq!(Rates::loaded(given, Scope::Device), expected);
    }
}
