// SPDX-License-Identifier: Apache-2.0
//! The bytes of blocks in an order that does not depend on their order in memory.

use super::axes::PairedBlock;
use super::nest::PairedAxis;
use super::side::Side;

/// Passes address and size of each span of a block to `visit`, in the order of (token, layer, outer slot, head, element).
pub fn each_span(side: &Side, block: &PairedBlock, of: usize, id: u32, mut visit: impl FnMut(u64, u64)) {
    let [layers, outers, tokens, heads, elements] = &block.axes;
    let (spans, size) = match elements.strides[of] == block.element_size {
        true => (1, elements.count * block.element_size),
        false => (elements.count, block.element_size),
    };
    let offset = u64::from(id) * side.block_stride;
    let further = |(region, bytes): (u32, u64), axis: &PairedAxis, index: u64| {
        (region + axis.regions[of] * index as u32, bytes + axis.strides[of] * index)
    };
    for token in 0..tokens.count {
        let at = further((0, offset), tokens, token);
        for layer in 0..layers.count {
            let at = further(at, layers, layer);
            for outer in 0..outers.count {
                let at = further(at, outers, outer);
                for head in 0..heads.count {
                    let at = further(at, heads, head);
                    for span in 0..spans {
                        let (region, bytes) = further(at, elements, span);
                        visit(side.at(region, bytes).1, size);
                    }
                }
            }
        }
    }
}
