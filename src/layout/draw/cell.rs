// SPDX-License-Identifier: Apache-2.0
//! Nested boxes: their sizes, places and colours.

use std::fmt::Write;

/// The pattern of padding.
pub const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f3f4f6\"/><line x1=\"0\" \
                         y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#9ca3af\" stroke-width=\"2\"/></pattern></defs>\n";

const GAP: u32 = 3;
const BORDER: u32 = 4;
const HEADER: u32 = 14;
const BAR_HEIGHT: u32 = 16;
/// An estimate: the widest of the usual fonts at this size.
const CHARACTER: u32 = 6;

/// Where the content of a box goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the right.
    Right,
    /// Downwards.
    Down,
}

/// What a box stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Nothing by itself.
    Group,
    /// A region.
    Region,
    /// A region whose content is like that of the first.
    Collapsed,
    /// An index of an axis.
    Plain,
    /// The highlighted block.
    Highlighted,
    /// Contiguous bytes of an outer slot.
    Row { outer: u64, is_of_block: bool },
    /// Bytes that are not in the layout.
    Padding,
    /// Indices that are left out.
    Gap,
}

impl Style {
    /// Fill, line and its width.
    fn colours(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Group | Self::Gap => ("none", "none", "0"),
            Self::Region => ("#f8fafc", "#334155", "1.5"),
            Self::Collapsed => ("#f1f5f9", "#94a3b8", "1"),
            Self::Plain => ("#ffffff", "#94a3b8", "1"),
            Self::Highlighted => ("#fff7e0", "#d97706", "2"),
            Self::Row { outer: 0, is_of_block: false } => ("#dbeafe", "#93c5fd", "1"),
            Self::Row { outer: 0, is_of_block: true } => ("#60a5fa", "#1d4ed8", "1"),
            Self::Row { is_of_block: false, .. } => ("#dcfce7", "#86efac", "1"),
            Self::Row { is_of_block: true, .. } => ("#4ade80", "#15803d", "1"),
            Self::Padding => ("url(#hatch)", "#9ca3af", "1"),
        }
    }
}

/// Width and height in pixels.
#[derive(Clone, Copy, Default)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// A box, and the boxes in it.
pub struct Cell {
    label: String,
    style: Style,
    cells: Vec<Cell>,
    direction: Direction,
    size: Size,
}

impl Cell {
    /// A box with a label in it, and nothing else.
    pub fn bar(label: String, style: Style) -> Self {
        Self { label, style, cells: Vec::new(), direction: Direction::Right, size: Size::default() }
    }

    /// A box with a label above its content.
    pub fn container(label: String, style: Style, cells: Vec<Cell>, direction: Direction) -> Self {
        Self { label, style, cells, direction, size: Size::default() }
    }

    /// Boxes beside each other.
    pub fn group(cells: Vec<Cell>, direction: Direction) -> Self {
        Self::container(String::new(), Style::Group, cells, direction)
    }

    /// Computes the sizes, from the inside to the outside.
    pub fn measure(&mut self) -> Size {
        let sizes: Vec<_> = self.cells.iter_mut().map(Self::measure).collect();
        let label = self.label.chars().count() as u32 * CHARACTER + 2 * BORDER;
        let gaps = GAP * (sizes.len() as u32).saturating_sub(1);
        let widths = || sizes.iter().map(|size| size.width);
        let heights = || sizes.iter().map(|size| size.height);
        let (width, height) = match self.direction {
            Direction::Right => (widths().sum::<u32>() + gaps, heights().max().unwrap_or(0)),
            Direction::Down => (widths().max().unwrap_or(0), heights().sum::<u32>() + gaps),
        };
        self.size = match (self.cells.is_empty(), self.style) {
            (true, _) => Size { width: label, height: BAR_HEIGHT },
            (false, Style::Group) => Size { width, height },
            (false, _) => {
                Size { width: (width + 2 * BORDER).max(label), height: height + HEADER + 2 * BORDER }
            }
        };
        self.size
    }

    /// Writes the box and its content, at these coordinates.
    pub fn draw(&self, out: &mut String, x: u32, y: u32) {
        let (fill, stroke, line) = self.style.colours();
        let Size { width, height } = self.size;
        if stroke != "none" {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" fill=\"{fill}\" \
                 stroke=\"{stroke}\" stroke-width=\"{line}\"/>"
            );
        }
        if !self.label.is_empty() {
            let weight = if self.style == Style::Highlighted { "bold" } else { "normal" };
            let (x, y) = (x + BORDER, y + 11);
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-weight=\"{weight}\">{}</text>", self.label);
        }
        let (mut x, mut y) = match self.style {
            Style::Group => (x, y),
            _ => (x + BORDER, y + HEADER + BORDER),
        };
        for cell in &self.cells {
            cell.draw(out, x, y);
            match self.direction {
                Direction::Right => x += cell.size.width + GAP,
                Direction::Down => y += cell.size.height + GAP,
            }
        }
    }
}
