// SPDX-License-Identifier: Apache-2.0
//! The parts of a layout: keys and values of different width, data and scales, an indexer, a recurrent state. They share
//! block ids, and each is a layout of its own.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::axis::Axis;
use super::placement::Placement;
use super::{Geometry, Layout, NamedPart};
use crate::base::{Error, Result, Status, ensure};

/// The maximum number of parts. A layout with keys and values of each layer by themselves has a few hundred.
pub const MAX_PARTS: usize = 1024;
/// The maximum size of a name in bytes.
const MAX_NAME: usize = 64;

/// A part of a layout, or a layout without parts.
#[derive(Clone, Copy, Debug)]
pub struct LayoutPart<'a> {
    /// Empty for a layout without parts.
    pub name: &'a str,
    pub placement: &'a Placement,
    /// The index of its first region among those of the layout.
    pub first_region: u32,
}

impl Layout {
    /// Its parts in the order of their names; itself, without a name, if it was not combined.
    pub fn parts(&self) -> impl Iterator<Item = LayoutPart<'_>> + Clone {
        let whole = LayoutPart { name: "", placement: &self.placement, first_region: 0 };
        let parts = self.parts.iter().map(|part| LayoutPart {
            name: &part.name,
            placement: &part.layout.placement,
            first_region: part.first_region,
        });
        self.parts.is_empty().then_some(whole).into_iter().chain(parts)
    }

    /// The addresses of its blocks. Fails if it has parts.
    #[inline]
    pub fn single(&self) -> Result<&Placement> {
        if self.parts.is_empty() { Ok(&self.placement) } else { Err(not_single(&self.parts)) }
    }

    /// The layouts that it was combined from, with their names; none if it was built.
    pub fn part_layouts(&self) -> impl Iterator<Item = (&str, &Arc<Self>)> {
        self.parts.iter().map(|part| (part.name.as_str(), &part.layout))
    }

    /// The regions of each of those layouts, among those of this one.
    pub(super) fn part_regions(&self) -> impl Iterator<Item = (Range<u32>, &Arc<Self>)> {
        self.parts.iter().map(|part| {
            let end = part.first_region + part.layout.placement.bases().len() as u32;
            (part.first_region..end, &part.layout)
        })
    }

    /// The number of layouts that it was combined from; 0 if it was built.
    pub fn num_parts(&self) -> usize {
        self.parts.len()
    }

    pub fn part(&self, name: &str) -> Result<&Arc<Self>> {
        let found = self.parts.iter().find(|part| part.name == name);
        found.map(|part| &part.layout).ok_or_else(|| self.no_part(name))
    }

    pub fn part_names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }

    /// The error for a name of no part.
    pub fn no_part(&self, name: &str) -> Error {
        let have = match self.parts.is_empty() {
            true => "it was not combined from parts".to_string(),
            false => format!("its parts are {}", names(self.part_names())),
        };
        Error::new(Status::NotFound, format!("the layout has no part '{}'; {have}", name.escape_debug()))
    }

    /// The part with a region, and the index of the region in it.
    pub(super) fn part_of_region(&self, region: u32) -> Option<(&Arc<Self>, u32)> {
        let index = self.parts.partition_point(|part| part.first_region <= region).checked_sub(1)?;
        let part = &self.parts[index];
        Some((&part.layout, region - part.first_region))
    }
}

/// Some names, as text.
pub fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut all: Vec<_> = names.take(SHOWN + 1).collect();
    let more = all.len() > SHOWN;
    all.truncate(SHOWN);
    format!("{}{}", all.join(", "), if more { ", …" } else { "" })
}

#[cold]
fn not_single(parts: &[NamedPart]) -> Error {
    let message = format!(
        "the layout has the parts {}, each with addresses of its own; get one of them with kvmem_layout_get_part",
        names(parts.iter().map(|part| part.name.as_str()))
    );
    Error::new(Status::Unsupported, message)
}

/// Fails if some shapes can't be the parts of one layout, whatever their memory.
pub fn ensure_parts<'a>(parts: impl Iterator<Item = (&'a str, &'a Geometry)> + Clone) -> Result<()> {
    let count = parts.clone().count();
    ensure!(
        (1..=MAX_PARTS).contains(&count),
        InvalidArgument,
        "num_parts is {count}; a layout is combined from 1 to {MAX_PARTS} parts"
    );
    let mut known = HashSet::new();
    let mut first = None;
    for (index, (name, geometry)) in parts.enumerate() {
        ensure!(
            !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control),
            InvalidArgument,
            "parts[{index}].name has {} bytes or a control character; give it 1 to {MAX_NAME} bytes of text",
            name.len()
        );
        ensure!(known.insert(name), InvalidArgument, "two parts have the name '{name}'; give each its own");
        let blocks = geometry.count(Axis::Block);
        let (first_name, first_blocks) = *first.get_or_insert((name, blocks));
        ensure!(
            blocks == first_blocks,
            InvalidArgument,
            "part '{name}' has {blocks} blocks and part '{first_name}' {first_blocks}; parts share block ids, so build \
             them with the same num_blocks"
        );
    }
    Ok(())
}
