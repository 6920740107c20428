// SPDX-License-Identifier: Apache-2.0
//! The same bytes of two layouts by the same numbers, also if this process has mapped memory more than once.

use crate::region::{AddressSpace, Place, Places};

/// Bytes in an address space that two layouts have in common: the number of the space, their start there, and their size.
pub type CommonBytes = (u32, u64, u64);

/// The places of the regions of a layout, in address spaces that it has in common with another layout.
#[derive(Debug)]
pub struct CommonPlaces<'a> {
    /// For each region its address, and its places, each with the number of its address space.
    regions: Vec<(u64, Vec<(u32, &'a Place)>)>,
}

impl<'a> CommonPlaces<'a> {
    /// Those of each of two layouts.
    pub fn between(sides: [&'a Places; 2]) -> [Self; 2] {
        let [mut spaces, others] = sides.map(Places::spaces);
        spaces.retain(|space| others.binary_search(space).is_ok());
        sides.map(|places| Self::in_spaces(places, &spaces))
    }

    fn in_spaces(places: &'a Places, spaces: &[&AddressSpace]) -> Self {
        let mut regions: Vec<_> = places.addresses().iter().map(|address| (*address, Vec::new())).collect();
        for (place, region) in places.each() {
            if let Ok(number) = spaces.binary_search(&&place.space) {
                regions[*region as usize].1.push((number as u32, place));
            }
        }
        Self { regions }
    }

    /// Where some bytes of a region are.
    pub fn find(
        &self,
        (region, address, size): (u32, u64, u64),
    ) -> impl Iterator<Item = CommonBytes> + use<'_> {
        let region = self.regions.get(region as usize);
        region.into_iter().flat_map(move |(start, places)| {
            places.iter().filter_map(move |(number, place)| {
                let part = place.part(address - start, size)?;
                Some((*number, part.start, part.end - part.start))
            })
        })
    }
}
