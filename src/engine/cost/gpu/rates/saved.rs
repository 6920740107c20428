// SPDX-License-Identifier: Apache-2.0
//! Saved copy rates: their serialized form, for a later process.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::peer::PeerRates;
use super::{DirectionRates, Rates, Source};
use crate::base::error::{Result, ensure, fail};
use crate::base::wire::Form;
use crate::cuda::device::UuidText;

const VERSIONS: RangeInclusive<u16> = 1..=1;
const FORM: Form = Form { magic: b"KVMEMRAT", versions: VERSIONS, name: "blob of copy rates" };

/// A GPU's UUID.
pub type Uuid = [u8; 16];

/// Copy rates, and the GPUs that they belong to.
#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// Of one GPU.
    Device(Uuid, Rates),
    /// Between two GPUs; the first executes the copies.
    Pair(Uuid, Uuid, PeerRates),
}

/// The serialized fields. A figure has eight bytes, a little-endian double.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    device: ByteBuf,
    peer: Option<ByteBuf>,
    source: u8,
    num_defaults: u32,
    figures: ByteBuf,
}

impl Saved {
    /// Serializes the rates.
    pub fn write(&self) -> Result<Vec<u8>> {
        let bytes = |uuid: &Uuid| ByteBuf::from(uuid.as_slice());
        let (device, peer, source, num_defaults) = match self {
            Self::Device(device, rates) => (bytes(device), None, rates.source, rates.num_defaults),
            Self::Pair(device, peer, rates) => {
                (bytes(device), Some(bytes(peer)), rates.source, rates.num_defaults)
            }
        };
        let figures = self.figures().into_iter().flat_map(f64::to_le_bytes).collect::<Vec<_>>();
        let figures = ByteBuf::from(figures);
        FORM.write(
            *VERSIONS.end(),
            &Fields { device, peer, source: source_number(source), num_defaults, figures },
        )
    }

    /// Reads the output of [`Self::write`]. Fails for any other bytes.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let (_, fields) = FORM.read::<Fields>(bytes)?;
        let Fields { device, peer, source, num_defaults, figures } = fields;
        let source = source_of(source)?;
        let saved = match peer {
            None => Self::Device(uuid(&device)?, Rates { source, num_defaults, ..Rates::default() }),
            Some(peer) => {
                let rates = PeerRates { source, num_defaults, ..PeerRates::default() };
                Self::Pair(uuid(&device)?, uuid(&peer)?, rates)
            }
        };
        saved.with_figures(&figures)
    }

    fn figures(&self) -> Vec<f64> {
        match self.clone() {
            Self::Device(_, mut rates) => rates.figures().map(|figure| *figure).to_vec(),
            Self::Pair(_, _, mut rates) => rates.figures().map(|figure| *figure).to_vec(),
        }
    }

    fn with_figures(mut self, bytes: &[u8]) -> Result<Self> {
        let places: Vec<&mut f64> = match &mut self {
            Self::Device(_, rates) => rates.figures().into_iter().collect(),
            Self::Pair(_, _, rates) => rates.figures().into_iter().collect(),
        };
        let (chunks, rest) = bytes.as_chunks::<8>();
        ensure!(
            chunks.len() == places.len() && rest.is_empty(),
            Corrupt,
            "the {} has {} bytes of figures, {} figures have 8 bytes each",
            FORM.name,
            bytes.len(),
            places.len()
        );
        for (place, chunk) in places.into_iter().zip(chunks) {
            let figure = f64::from_le_bytes(*chunk);
            ensure!(
                figure.is_finite() && figure > 0.0,
                Corrupt,
                "the {} has the figure {figure}; a rate or duration is a positive number",
                FORM.name
            );
            *place = figure;
        }
        Ok(self)
    }

    /// Describes the rates for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = match self {
            Self::Device(device, rates) => write_device(&mut text, device, rates),
            Self::Pair(device, peer, rates) => write_pair(&mut text, device, peer, rates),
        };
        text
    }
}

fn write_device(text: &mut String, device: &Uuid, rates: &Rates) -> std::fmt::Result {
    writeln!(
        text,
        "copy rates of the GPU with {}, {}",
        UuidText(device),
        provenance(rates.source, rates.num_defaults)
    )?;
    write_directions(
        text,
        &[
            ("host to GPU", &rates.to_device),
            ("GPU to host", &rates.to_host),
            ("within the GPU", &rates.on_device),
        ],
    )?;
    writeln!(text, "pageable host memory: {:.1} GB/s", rates.pageable / 1e9)?;
    writeln!(text, "one copy by the driver: {:.2} us without its bytes", rates.copy * 1e6)?;
    writeln!(text, "launch of a copy kernel: {:.2} us", rates.kernel_start * 1e6)
}

fn write_pair(text: &mut String, device: &Uuid, peer: &Uuid, rates: &PeerRates) -> std::fmt::Result {
    writeln!(
        text,
        "copy rates of the GPU with {} and the one with {}, {}",
        UuidText(device),
        UuidText(peer),
        provenance(rates.source, rates.num_defaults)
    )?;
    write_directions(text, &[("from the other GPU", &rates.read), ("to the other GPU", &rates.write)])
}

fn write_directions(text: &mut String, directions: &[(&str, &DirectionRates)]) -> std::fmt::Result {
    for (name, rates) in directions {
        writeln!(
            text,
            "{name}: {:.1} GB/s by the driver, {:.1} GB/s by a kernel, {:.1} GB/s per CTA, {:.2} us per copy of a batch",
            rates.link / 1e9,
            rates.kernel / 1e9,
            rates.cta / 1e9,
            rates.batched * 1e6
        )?;
    }
    Ok(())
}

fn provenance(source: Source, num_defaults: u32) -> String {
    let source = match source {
        Source::Default => "defaults of kvmem",
        Source::Measured => "measured",
        Source::Loaded => "set by the caller",
    };
    match num_defaults {
        0 => source.to_string(),
        number => format!("{source}, {number} of them scaled defaults"),
    }
}

fn source_number(source: Source) -> u8 {
    match source {
        Source::Default => 0,
        Source::Measured => 1,
        Source::Loaded => 2,
    }
}

fn source_of(number: u8) -> Result<Source> {
    Ok(match number {
        0 => Source::Default,
        1 => Source::Measured,
        2 => Source::Loaded,
        other => fail!(Corrupt, "the {} has the unknown source {other}", FORM.name),
    })
}

fn uuid(bytes: &[u8]) -> Result<Uuid> {
    match bytes.try_into() {
        Ok(uuid) => Ok(uuid),
        Err(_) => fail!(Corrupt, "the {} has a UUID of {} bytes", FORM.name, bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT;
    use super::*;
    use crate::base::error::Status;
    use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};

    fn device() -> Saved {
        Saved::Device(
            [7; 16],
            Rates { source: Source::Measured, num_defaults: 2, peer: DirectionRates::default(), ..DEFAULT },
        )
    }

    fn pair() -> Saved {
        let rates = PeerRates { read: DEFAULT.peer, write: DEFAULT.to_host, ..PeerRates::default() };
        Saved::Pair([7; 16], [8; 16], rates)
    }

    #[test]
    fn written_rates_are_read_back() {
        for saved in [device(), pair()] {
            assert_eq!(Saved::read(&saved.write().unwrap()).unwrap(), saved);
        }
    }

    #[test]
    fn damage_and_other_versions_are_rejected() {
        for saved in [device(), pair()] {
            let bytes = saved.write().unwrap();
            ensure_all_damage_is_found(&bytes, Saved::read);
            let error = Saved::read(&of_version(&bytes, 2)).unwrap_err();
            assert_eq!(error.status(), Status::VersionMismatch);
        }
    }

    #[test]
    fn figures_that_are_not_positive_numbers_are_rejected() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let rates = Rates { copy: wrong, ..DEFAULT };
            let bytes = Saved::Device([7; 16], rates).write().unwrap();
            let error = Saved::read(&bytes).unwrap_err();
            assert_eq!(error.status(), Status::Corrupt);
            assert!(error.message().contains("positive number"), "{error}");
        }
    }

    #[test]
    fn the_text_has_the_figures_with_units() {
        let text = device().text();
        assert!(text.starts_with("copy rates of the GPU with UUID 07070707-"), "{text}");
        assert!(text.contains("measured, 2 of them scaled defaults"), "{text}");
        assert!(text.contains("host to GPU: 55.5 GB/s by the driver"), "{text}");
        assert!(text.contains("launch of a copy kernel: 6.00 us"), "{text}");
        assert!(pair().text().contains("from the other GPU: 370.0 GB/s"), "{}", pair().text());
    }
}
