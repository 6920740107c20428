// SPDX-License-Identifier: Apache-2.0
//! Saved copy rates: their serialized form, for a later process.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{DirectionRates, Rates, Scope, Source};
use crate::base::wire::Form;
use crate::base::{Result, ensure, fail};
use crate::cuda::device::UuidText;

const VERSIONS: RangeInclusive<u16> = 1..=1;
const FORM: Form = Form { magic: b"KVMEMRAT", versions: VERSIONS, name: "blob of copy rates" };

pub type Uuid = [u8; 16];

/// Copy rates, and the GPUs that they belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The GPU, or the one of two that executes the copies.
    pub device: Uuid,
    /// The other GPU.
    pub peer: Option<Uuid>,
    pub rates: Rates,
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
    fn scope(&self) -> Scope {
        if self.peer.is_some() { Scope::Pair } else { Scope::Device }
    }

    pub fn write(&self) -> Result<Vec<u8>> {
        let bytes = |uuid: &Uuid| ByteBuf::from(uuid.as_slice());
        let mut rates = self.rates;
        let figures = rates.figures(self.scope()).into_iter().flat_map(|figure| figure.to_le_bytes());
        FORM.write(
            *VERSIONS.end(),
            &Fields {
                figures: ByteBuf::from(figures.collect::<Vec<_>>()),
                device: bytes(&self.device),
                peer: self.peer.as_ref().map(bytes),
                source: source_number(self.rates.source),
                num_defaults: self.rates.num_defaults,
            },
        )
    }

    /// Reads the output of [`Self::write`]. Fails for any other bytes.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let (_, fields) = FORM.read::<Fields>(bytes)?;
        let Fields { device, peer, source, num_defaults, figures } = fields;
        let rates = Rates { source: source_of(source)?, num_defaults, ..Rates::default() };
        let peer = peer.map(|peer| uuid(&peer)).transpose()?;
        Self { device: uuid(&device)?, peer, rates }.with_figures(&figures)
    }

    fn with_figures(mut self, bytes: &[u8]) -> Result<Self> {
        let scope = self.scope();
        let places = self.rates.figures(scope);
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
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let Self { device, peer, rates } = self;
        write!(text, "copy rates of the GPU with {}", UuidText(device))?;
        let provenance = provenance(rates.source, rates.num_defaults);
        if let Some(peer) = peer {
            writeln!(text, " and the one with {}, {provenance}", UuidText(peer))?;
            let directions = [("from the other GPU", &rates.from_peer), ("to the other GPU", &rates.to_peer)];
            return write_directions(text, &directions);
        }
        writeln!(text, ", {provenance}")?;
        let (to_device, to_host) = (("host to GPU", &rates.to_device), ("GPU to host", &rates.to_host));
        write_directions(text, &[to_device, to_host, ("within the GPU", &rates.on_device)])?;
        writeln!(text, "pageable host memory: {:.1} GB/s", rates.pageable / 1e9)?;
        writeln!(text, "one copy by the driver: {:.2} us without its bytes", rates.copy * 1e6)?;
        writeln!(text, "launch of a copy kernel: {:.2} us", rates.kernel_start * 1e6)
    }
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
    use crate::base::Status;
    use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};

    fn device() -> Saved {
        let rates = Rates {
            source: Source::Measured,
            num_defaults: 2,
            from_peer: DirectionRates::default(),
            to_peer: DirectionRates::default(),
            ..DEFAULT
        };
        Saved { device: [7; 16], peer: None, rates }
    }

    fn pair() -> Saved {
        let rates = Rates { from_peer: DEFAULT.from_peer, to_peer: DEFAULT.to_host, ..Rates::default() };
        Saved { device: [7; 16], peer: Some([8; 16]), rates }
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
            Saved::read(&of_version(&bytes, 2)).unwrap_err().assert_is(Status::VersionMismatch, "");
        }
    }

    #[test]
    fn figures_that_are_not_positive_numbers_are_rejected() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let rates = Rates { copy: wrong, ..DEFAULT };
            let bytes = Saved { device: [7; 16], peer: None, rates }.write().unwrap();
            Saved::read(&bytes).unwrap_err().assert_is(Status::Corrupt, "positive number");
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
