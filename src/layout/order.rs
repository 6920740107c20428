// SPDX-License-Identifier: Apache-2.0
//! The order of a layout's axes in memory, such as `L/OBNHC`.
//!
//! Axes before `/` have separate regions, in row-major order; axes after it are the order within a region, from the
//! outermost to the innermost.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::axis::Axis;
use crate::base::{Error, Result, ensure, fail};

pub const AXES: usize = Axis::ALL.len();

/// The letters of all axes, for messages.
const LETTERS: &str = "B (block), L (layer), O (outer slot), N (token), H (head) and C (element)";
/// A longer text is no order; messages show this much of it.
const SHOWN: usize = 16;

/// The axes of a layout from the outermost to the innermost, each at most once.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Order {
    /// The first `len` count; the rest are blocks, so that equal orders are equal values.
    axes: [Axis; AXES],
    len: u8,
    /// How many of them have separate regions.
    region_axes: u8,
}

impl Order {
    /// Reads the letters of the axes. The error names the axis and what to change.
    pub fn parse(text: &str) -> Result<Self> {
        let shown = Shown(text);
        ensure!(
            !text.is_empty(),
            InvalidArgument,
            "the order is empty; give the axes from the outermost to the innermost, such as L/OBNHC"
        );
        let mut order = Self { axes: [Axis::Block; AXES], len: 0, region_axes: 0 };
        let mut has_regions = false;
        for letter in text.chars() {
            if letter == '/' {
                ensure!(
                    !has_regions,
                    InvalidArgument,
                    "the order {shown} has '/' twice; it separates the axes that have separate regions, once"
                );
                ensure!(
                    order.len > 0,
                    InvalidArgument,
                    "no axis precedes '/' in the order {shown}; omit '/' if all axes share one region"
                );
                has_regions = true;
                order.region_axes = order.len;
                continue;
            }
            order.push(letter, shown)?;
        }
        order.check_regions(has_regions, shown)?;
        Ok(order)
    }

    fn push(&mut self, letter: char, shown: Shown<'_>) -> Result<()> {
        let Some(axis) = Axis::from_letter(letter) else {
            fail!(
                InvalidArgument,
                "'{}' in the order {shown} is no axis; the axes are {LETTERS}",
                letter.escape_debug()
            );
        };
        ensure!(
            !self.has(axis),
            InvalidArgument,
            "axis {letter} ({}) is in the order {shown} twice; name it once",
            axis.name()
        );
        // There are as many letters as axes, and none is taken twice.
        self.axes[usize::from(self.len)] = axis;
        self.len += 1;
        Ok(())
    }

    fn check_regions(&self, has_regions: bool, shown: Shown<'_>) -> Result<()> {
        ensure!(
            !has_regions || self.region_axes < self.len,
            InvalidArgument,
            "no axis follows '/' in the order {shown}; the axes of a region follow it"
        );
        for axis in [Axis::Block, Axis::Element] {
            ensure!(
                !self.in_regions().contains(&axis),
                InvalidArgument,
                "axis {} ({}) precedes '/' in the order {shown}; {0} cannot have regions of its own, name it after '/'",
                axis.letter(),
                axis.name()
            );
        }
        Ok(())
    }

    /// An order of axes that are known to be different.
    pub(super) const fn from_axes(in_regions: &[Axis], within: &[Axis]) -> Self {
        let mut order = Self { axes: [Axis::Block; AXES], len: 0, region_axes: in_regions.len() as u8 };
        while (order.len as usize) < in_regions.len() + within.len() {
            let place = order.len as usize;
            order.axes[place] = match place < in_regions.len() {
                true => in_regions[place],
                false => within[place - in_regions.len()],
            };
            order.len += 1;
        }
        order
    }

    /// All axes of the order, from the outermost to the innermost.
    pub fn axes(&self) -> &[Axis] {
        &self.axes[..usize::from(self.len)]
    }

    /// The axes with separate regions, from the outermost to the innermost.
    pub fn in_regions(&self) -> &[Axis] {
        &self.axes[..usize::from(self.region_axes)]
    }

    /// The axes within a region, from the outermost to the innermost.
    pub fn within(&self) -> &[Axis] {
        &self.axes[usize::from(self.region_axes)..usize::from(self.len)]
    }

    pub fn has(&self, axis: Axis) -> bool {
        self.axes().contains(&axis)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(AXES + 1);
        text.extend(self.in_regions().iter().map(|axis| axis.letter()));
        if self.region_axes > 0 {
            text.push('/');
        }
        text.extend(self.within().iter().map(|axis| axis.letter()));
        f.pad(&text)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Order {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Order> for String {
    fn from(order: Order) -> Self {
        order.to_string()
    }
}

/// A text as a message shows it: it may come from another process.
#[derive(Clone, Copy)]
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(SHOWN).collect();
        let more = if shown.len() < self.0.len() { "…" } else { "" };
        write!(f, "'{}{more}'", shown.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Status;

    #[test]
    fn the_orders_of_engines_are_read_and_printed() {
        for text in [
            "BLONHC", "L/BONHC", "L/OBNHC", "L/OBHNC", "L/BHNOC", "LBNHC", "LHBNC", "BHLNC", "L/BNC",
            "BLOHNC", "LO/BNHC", "OLBNHC", "OBNLHC", "OBHNLC", "L/HCBN", "B", "LONH/BC",
        ] {
            assert_eq!(Order::parse(text).unwrap().to_string(), text);
        }
        let order = Order::parse("LO/BNHC").unwrap();
        assert_eq!(order.in_regions(), [Axis::Layer, Axis::Outer]);
        assert_eq!(order.within(), [Axis::Block, Axis::Token, Axis::Head, Axis::Element]);
        assert_eq!(order.axes().len(), 6);
        assert!(!Order::parse("L/BNC").unwrap().has(Axis::Head));
        let built = Order::from_axes(&[Axis::Layer], &[Axis::Block, Axis::Token, Axis::Element]);
        assert_eq!(built, Order::parse("L/BNC").unwrap());
    }

    #[test]
    fn wrong_orders_are_refused_by_the_name_of_the_axis() {
        for (text, part) in [
            ("", "the order is empty"),
            ("L/BOXHC", "'X' in the order 'L/BOXHC' is no axis"),
            ("l/bonhc", "'l' in the order"),
            ("L BNC", "' ' in the order"),
            ("B\nC", "'\\n' in the order 'B\\nC' is no axis"),
            ("L/BONHNC", "axis N (token) is in the order 'L/BONHNC' twice"),
            ("BLONHCBLONHC", "axis B (block) is in the order"),
            ("L/B/NHC", "has '/' twice"),
            ("L//BNHC", "has '/' twice"),
            ("/BNHC", "no axis precedes '/'"),
            ("LO/", "no axis follows '/'"),
            ("BL/ONHC", "axis B (block) precedes '/'"),
            ("C/BN", "axis C (element) precedes '/' in the order 'C/BN'; C cannot have regions of its own"),
        ] {
            Order::parse(text).unwrap_err().assert_is(Status::InvalidArgument, part);
        }
        let long = Order::parse(&"L/BNHC ".repeat(1000)).unwrap_err();
        assert!(long.message().len() < 200, "{long}");
    }

    proptest! {
        #[test]
        fn any_text_is_an_order_that_prints_as_it_was_or_an_error(text in "[BLONHC/]{0,8}|.{0,8}") {
            if let Ok(order) = Order::parse(&text) {
                prop_assert_eq!(order.to_string(), text);
            }
        }
    }
}
