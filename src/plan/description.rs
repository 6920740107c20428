// SPDX-License-Identifier: Apache-2.0
//! The loops of a plan in words: which axes are contiguous on both sides, and which are loops. Pure.

use super::nest::{Loop, PairedAxis};
use super::{Plan, PlanPart};
use crate::base::Count;
use crate::base::one_line::one_line;
use crate::base::sorting::sort_few_by_key;
use crate::layout::Axis;

/// A layout may have a thousand parts.
const MAX_LINES: usize = 32;

impl Plan {
    /// One line per set of blocks with the same loops, with the name of the part of the layouts.
    pub fn description(&self) -> String {
        let has_blocks = self.block_runs().is_some();
        let mut text: String =
            self.parts().take(MAX_LINES).map(|part| part.description(has_blocks)).collect();
        let more = self.parts().count().saturating_sub(MAX_LINES);
        if more > 0 {
            text += &format!("loops of {more} more\n");
        }
        text
    }
}

impl PlanPart<'_> {
    fn description(&self, has_blocks: bool) -> String {
        let unit = self.shape.nest.unit_size;
        let moved = || self.block.axes.iter().filter(|axis| axis.count > 1);
        let is_within =
            |axis: &PairedAxis| axis.regions == [0; 2] && axis.strides.iter().all(|stride| *stride < unit);
        let mut within: Vec<_> = moved().filter(|axis| is_within(axis)).collect();
        sort_few_by_key(&mut within, |axis| std::cmp::Reverse(axis.strides[1]));
        let name = if self.name.is_empty() {
            String::new()
        } else {
            format!(" of part '{}'", one_line(self.name.to_string()))
        };
        let counted = if has_blocks {
            Count(self.blocks(), "block").to_string()
        } else {
            let tokens = moved().find(|axis| axis.axis == Axis::Token).map_or(1, |axis| axis.count);
            format!("{} of {}", Count(self.blocks(), "span"), Count(tokens, "token"))
        };
        let mut text = format!("loops{name}: {counted}");
        for each in self.loops() {
            let mut axes: Vec<_> = moved().filter(|axis| !is_within(axis) && is_of(axis, each)).collect();
            sort_few_by_key(&mut axes, |axis| std::cmp::Reverse((axis.regions[1], axis.strides[1])));
            text += &format!(", {} {}", letters(&axes), each.count);
        }
        text += &format!("; rows of {unit} bytes are contiguous on both sides");
        text +=
            &if within.is_empty() { ": one element".to_string() } else { format!(": {}", letters(&within)) };
        if self.shape.blocks_together {
            text += ", also across blocks with consecutive ids";
        }
        text + "\n"
    }
}

fn letters(axes: &[&PairedAxis]) -> String {
    axes.iter().map(|axis| axis.axis.letter()).collect()
}

/// Whether a loop goes through an axis: alone, or merged with others that it continues on both sides.
fn is_of(axis: &PairedAxis, each: &Loop) -> bool {
    let steps = |index: u64| {
        (0..2).all(|side| {
            axis.strides[side] == index * each.strides[side]
                && u64::from(axis.regions[side]) == index * u64::from(each.regions[side])
        })
    };
    let of = |by: u64, one: u64| by.checked_div(one);
    let pairs = (0..2).map(|side| {
        of(axis.strides[side], each.strides[side])
            .or(of(axis.regions[side].into(), each.regions[side].into()))
    });
    pairs.flatten().next().is_some_and(|index| index > 0 && index * axis.count <= each.count && steps(index))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layout::{Arrangement, Dimensions, Geometry, Order, Placement};
    use crate::plan::{BlockPair, BlockTable, Outline, PairedRange, TokenTables, Wanted};

    fn side(order: &str, page_size: u64, start: u64) -> Placement {
        let dimensions = Dimensions {
            num_blocks: 8,
            num_layers: 3,
            outer_dim: 2,
            page_size,
            inner_dim: 4 * 128,
            dtype_width: 2,
            num_heads: Some(4),
            ..Dimensions::ONE
        };
        let kind = Arrangement::tight(Order::parse(order).unwrap());
        Placement::within(Geometry::new(dimensions, kind).unwrap(), start).unwrap()
    }

    fn described(from: &str, to: &str, heads: Option<PairedRange>) -> String {
        let pairs = [(1, 2), (3, 4)].map(|(source, destination)| BlockPair { source, destination });
        let wanted = Wanted { heads, ..Wanted::default() };
        Plan::between(&side(from, 16, 4096), &side(to, 16, 1 << 24), &pairs, wanted).unwrap().description()
    }

    #[test]
    fn loops_have_the_axes_that_they_go_through() {
        for (from, to, expected) in [
            (
                "L/OBNHC",
                "L/OBHNC",
                "loops: 2 blocks, L 3, O 2, H 4, N 16; rows of 256 bytes are contiguous on both sides: C\n",
            ),
            (
                "BLONHC",
                "L/BONHC",
                "loops: 2 blocks, L 3; rows of 32768 bytes are contiguous on both sides: ONHC\n",
            ),
            (
                "BLONHC",
                "BLONHC",
                "loops: 2 blocks; rows of 98304 bytes are contiguous on both sides: LONHC, also across blocks with \
                 consecutive ids\n",
            ),
            (
                "BNLOHC",
                "BLONHC",
                "loops: 2 blocks, LO 6, N 16; rows of 1024 bytes are contiguous on both sides: HC\n",
            ),
            (
                "L/OHCBN",
                "L/OBNHC",
                "loops: 2 blocks, L 3, O 2, N 16, HC 512; rows of 2 bytes are contiguous on both sides: one element\n",
            ),
        ] {
            assert_eq!(described(from, to, None), expected, "{from} to {to}");
        }
        let heads = Some(PairedRange { source: 1, destination: 0, count: 2 });
        let expected = "loops: 2 blocks, LON 96; rows of 512 bytes are contiguous on both sides: HC\n";
        assert_eq!(described("BLONHC", "BLONHC", heads), expected);
    }

    #[test]
    fn spans_at_the_ends_have_lines_of_their_own() {
        let (from, to) = (side("L/BONHC", 16, 4096), side("L/BONHC", 8, 1 << 24));
        let outline = Arc::new(Outline::between(&from, &to, Wanted::default(), false).unwrap());
        let table = |first_token| BlockTable { blocks: &[5, 1, 3, 2], first_token, token_step: 1 };
        let tables = TokenTables { sides: [table(4), table(4)], tokens: 16 };
        let text = Plan::from_tokens(&outline, &tables, None).unwrap().description();
        let line = |tokens, bytes| {
            format!(
                "loops: 1 span of {tokens} tokens, L 3, O 2; rows of {bytes} bytes are contiguous on both sides: NHC\n"
            )
        };
        assert_eq!(text, line(4, 4096) + &line(8, 8192) + &line(4, 4096));
    }
}
