// SPDX-License-Identifier: Apache-2.0
//! Each object of a layout contains the bytes of one block and nothing else: NIXL writes whole objects.

use super::Layout;
use super::axis::Axis;
use super::geometry::Geometry;
use crate::base::{Error, Result, ensure, error, fail};
use crate::region::Region;

/// Bytes at the start of each object of this size that a layout uses. Fails if an object has bytes of several blocks or not of
/// the layout, or if the parts of a block in an object continue in the next one.
fn content(geometry: &Geometry, object_size: u64) -> Result<u64> {
    let axes = geometry.axes_by_stride();
    let (inside, outside) = axes.split_at(axes.partition_point(|axis| geometry.stride(*axis) < object_size));
    if inside.contains(&Axis::Block) {
        let stride = geometry.block_stride();
        return Err(refused(
            geometry,
            Axis::Block,
            object_size,
            &format!(
                "so that an object has bytes of several blocks; create the region with objects of {stride} bytes, with blocks as the \
             outermost axis, or give axis B a stride of {object_size} bytes"
            ),
        ));
    }
    for axis in outside {
        if !geometry.stride(*axis).is_multiple_of(object_size) {
            return Err(refused(
                geometry,
                *axis,
                object_size,
                "so that a block crosses the ends of objects; the stride must be a \
             multiple of the size of an object",
            ));
        }
    }
    let mut size = geometry.element_size();
    for axis in inside {
        if geometry.stride(*axis) != size {
            return Err(refused(
                geometry,
                *axis,
                object_size,
                &format!(
                    "which leaves bytes between its indices that no write fills; give it {size} bytes within an object"
                ),
            ));
        }
        size *= geometry.count(*axis);
    }
    ensure!(
        size <= object_size,
        InvalidArgument,
        "{size} contiguous bytes of a block cross the end of an object of {object_size} bytes; create the region with objects \
         of {size} bytes or more"
    );
    Ok(size)
}

fn refused(geometry: &Geometry, axis: Axis, object_size: u64, reason: &str) -> Error {
    error!(
        InvalidArgument,
        "axis {} ({}) has a stride of {} bytes, and the objects have {object_size} bytes, {reason}",
        axis.letter(),
        axis.name(),
        geometry.stride(axis)
    )
}

/// Fails for objects that would not contain whole parts of single blocks.
pub fn ensure_whole_objects(geometry: &Geometry, region: &Region) -> Result<()> {
    let Some(objects) = region.objects() else { return Ok(()) };
    let object_size = objects.object_size();
    content(geometry, object_size)?;
    if !region.address().is_multiple_of(object_size) {
        fail!(
            InvalidArgument,
            "the view starts at byte {} of the objects, which is within an object of {object_size} bytes",
            region.address()
        );
    }
    Ok(())
}

impl Layout {
    /// Bytes that it uses of each object of a region, from the start; `None` if the region does not consist of objects.
    pub fn object_content(&self, region: u32) -> Option<u64> {
        if let Some((part, region)) = self.part_of_region(region) {
            return part.object_content(region);
        }
        let objects = self.memory().regions().get(region as usize)?.objects()?;
        content(self.geometry(), objects.object_size()).ok()
    }

    pub fn object_key(&self, region: u32, address: u64) -> String {
        let region = self.memory().regions().get(region as usize);
        let objects = region.and_then(|region| region.objects());
        objects.map_or(String::new(), |objects| objects.key(address / objects.object_size()))
    }

    /// The object at an address of a region, and the store that it is in, for messages; `others` says that it is one of several.
    pub fn stored_object(&self, region: u32, address: u64, others: bool) -> String {
        let key = self.object_key(region, address);
        let others = if others { " and others" } else { "" };
        let store = self.memory().store().map_or(String::new(), |store| format!(" of {store}"));
        format!("object '{key}'{others}{store}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Arrangement, Dimensions, Order, Strides};

    /// 4 blocks of 2 layers and 2 outer slots; a piece has 64 bytes.
    fn geometry(order: &str, block_stride: Option<u64>) -> Geometry {
        let dimensions = Dimensions {
            num_blocks: 4,
            num_layers: 2,
            outer_dim: 2,
            page_size: 4,
            inner_dim: 8,
            dtype_width: 2,
            ..Dimensions::ONE
        };
        let strides =
            block_stride.map_or(Strides::default(), |stride| Strides::default().with(Axis::Block, stride));
        let order = Order::parse(order).unwrap();
        Geometry::new(dimensions, Arrangement { order, strides }).unwrap()
    }

    #[test]
    fn an_object_is_a_block_or_a_part_of_one() {
        for (order, object_size, expected) in [
            ("BLONC", 256, 256), // a block
            ("BLONC", 128, 128), // a layer of a block
            ("BLONC", 64, 64),   // a piece
            ("LBONC", 128, 128), // a layer of a block, with layers outside
            ("LOBNC", 64, 64),
            ("L/BONC", 128, 128), // regions of one layer each
        ] {
            assert_eq!(
                content(&geometry(order, None), object_size).unwrap(),
                expected,
                "{order} {object_size}"
            );
        }
        assert_eq!(
            content(&geometry("BLONC", Some(512)), 512).unwrap(),
            256,
            "the rest of an object is not used"
        );
    }

    #[test]
    fn the_axis_that_breaks_objects_is_named() {
        for (order, object_size, part) in [
            ("BLONC", 512, "axis B (block) has a stride of 256 bytes"),
            ("BLONC", 1 << 20, "create the region with objects of 256 bytes"),
            ("LBONC", 256, "axis B (block) has a stride of 128 bytes"),
            ("BLONC", 192, "axis B (block) has a stride of 256 bytes"),
            ("BLONC", 96, "axis L (layer) has a stride of 128 bytes"),
            ("BLONC", 32, "64 contiguous bytes"),
        ] {
            let error = content(&geometry(order, None), object_size).unwrap_err();
            assert!(error.message().contains(part), "{order} {object_size}: {error}");
        }
        let padded = geometry("BLONC", Some(384));
        assert!(content(&padded, 512).unwrap_err().message().contains("a stride of 384"));
    }
}
