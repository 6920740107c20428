// SPDX-License-Identifier: Apache-2.0
//! A picture of a layout as SVG: the axes as nested boxes, their strides, padding, and one block highlighted.
//!
//! Of an axis with many indices a few are shown; of several regions the first is shown with its content. The content of a
//! box is in the order of addresses, left to right or top to bottom.

mod cell;

use std::fmt::Write;

use super::axis::Axis;
use super::geometry::Geometry;
use cell::{Cell, Direction, Style};

/// Indices of an axis that are shown if it has more: the first two and the last.
const SHOWN: u64 = 3;
/// Of more axes than these, the first index and the last are shown, so that the picture stays small.
const MAX_LEVELS: usize = 4;
const MARGIN: u32 = 16;
const LINE: u32 = 18;
const MONO: &str = "ui-monospace, monospace";

/// The picture of some parts, one below the other, with one block highlighted in each. The part of a layout without parts
/// has no name.
pub fn svg(parts: &[(&str, &Geometry)], block: u64) -> String {
    let drawn: Vec<_> = parts.iter().map(|(_, geometry)| draw(geometry, block)).collect();
    if let ([(name, _)], [single]) = (parts, &drawn[..])
        && name.is_empty()
    {
        return single.svg.clone();
    }
    let width = drawn.iter().map(|part| part.width).max().unwrap_or(0);
    let height: u32 = drawn.iter().map(|part| part.height + 2 * LINE).sum();
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" role=\"img\">\n<title>{} parts; block {block} is highlighted in \
         each</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        parts.len(),
    );
    let mut top = 0;
    for ((name, _), part) in parts.iter().zip(&drawn) {
        text(&mut out, MARGIN, top + 2 * LINE - 6, 20, "bold", &format!("part {}", escaped(name)));
        top += 2 * LINE;
        out.push_str(&part.svg.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
        top += part.height;
    }
    out.push_str("</svg>\n");
    out
}

/// A text as XML contains it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A picture and its size.
struct Drawn {
    svg: String,
    width: u32,
    height: u32,
}

/// The picture of one shape.
fn draw(geometry: &Geometry, block: u64) -> Drawn {
    let picture = Picture { geometry, block };
    let mut regions = picture.regions();
    let size = regions.measure();
    let rows = picture.rows();
    let top = MARGIN + 3 * LINE;
    let width = (size.width + 2 * MARGIN).max(720);
    let height = top + size.height + (rows.len() as u32 + 3) * LINE + MARGIN;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"10\" role=\"img\">\n<title>{}</title>\n{}<rect \
         width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        picture.title(),
        cell::HATCH
    );
    text(&mut out, MARGIN, MARGIN + 12, 18, "bold", &geometry.order().to_string());
    text(&mut out, MARGIN, MARGIN + LINE + 12, 11, "normal", &picture.title());
    regions.draw(&mut out, MARGIN, top);
    picture.table(&mut out, &rows, top + size.height + 2 * LINE);
    out.push_str("</svg>\n");
    Drawn { svg: out, width, height }
}

fn text(out: &mut String, x: u32, y: u32, size: u32, weight: &str, content: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" font-weight=\"{weight}\">{content}</text>"
    );
}

struct Picture<'a> {
    geometry: &'a Geometry,
    block: u64,
}

/// What the boxes inside an index have in common.
#[derive(Clone, Copy)]
struct Inside {
    outer: u64,
    is_of_block: bool,
}

impl Picture<'_> {
    fn title(&self) -> String {
        let geometry = self.geometry;
        let regions = match geometry.num_regions() {
            1 => "one region".to_string(),
            count => format!("{count} regions"),
        };
        format!(
            "{regions} of {} bytes; rows of {} contiguous bytes; block {} is highlighted",
            geometry.region_size(),
            geometry.row_size(),
            self.block
        )
    }

    /// The axes that are boxes: all with several indices, and blocks. Contiguous elements are the row itself.
    fn levels(&self) -> Vec<Axis> {
        let order = self.geometry.order();
        let has_rows = order.within().last() == Some(&Axis::Element);
        let is_level = |axis: &Axis| match axis {
            Axis::Block => true,
            Axis::Element => !has_rows && self.geometry.count(*axis) > 1,
            _ => self.geometry.count(*axis) > 1,
        };
        order.within().iter().copied().filter(is_level).collect()
    }

    fn regions(&self) -> Cell {
        let levels = self.levels();
        let count = self.geometry.num_regions() as u64;
        let region = |index: u64| {
            let inside = Inside { outer: self.outer_of_region(index), is_of_block: false };
            let label = self.region_label(index);
            if index > 0 {
                return Cell::bar(format!("{label}: the same"), Style::Collapsed);
            }
            self.container(label, Style::Region, &levels, inside, 0)
        };
        let mut cells = Vec::new();
        for (index, is_after_gap) in shown(count, None, SHOWN) {
            if is_after_gap {
                cells.push(Cell::bar("⋮".to_string(), Style::Gap));
            }
            cells.push(region(index));
        }
        Cell::group(cells, Direction::Down)
    }

    /// The region's index on each axis that has regions of its own.
    fn region_label(&self, region: u64) -> String {
        let mut label = format!("region {region}");
        for axis in self.geometry.order().in_regions() {
            let step = self.geometry.region_step(*axis).max(1) as u64;
            let _ =
                write!(label, ", {}", self.index_label(*axis, region / step % self.geometry.count(*axis)));
        }
        label
    }

    fn outer_of_region(&self, region: u64) -> u64 {
        match self.geometry.region_step(Axis::Outer) as u64 {
            0 => 0,
            step => region / step % self.geometry.count(Axis::Outer),
        }
    }

    fn index_label(&self, axis: Axis, index: u64) -> String {
        match (axis, index) {
            (Axis::Outer, 0) if self.geometry.count(Axis::Outer) == 2 => "keys".to_string(),
            (Axis::Outer, 1) if self.geometry.count(Axis::Outer) == 2 => "values".to_string(),
            _ => format!("{} {index}", axis.name()),
        }
    }

    /// A box with the indices of the next axis, and the padding that its own stride has.
    fn container(&self, label: String, style: Style, levels: &[Axis], inside: Inside, padding: u64) -> Cell {
        let mut cells = self.indices(levels, inside);
        // Rows of boxes and columns of boxes alternate, and the innermost boxes are a row.
        let direction = if levels.len() % 2 == 1 { Direction::Right } else { Direction::Down };
        if padding > 0 {
            cells.push(Cell::bar(format!("+ {padding} B"), Style::Padding));
        }
        Cell::container(label, style, cells, direction)
    }

    fn indices(&self, levels: &[Axis], inside: Inside) -> Vec<Cell> {
        let Some((axis, inner)) = levels.split_first() else { return Vec::new() };
        let also = (*axis == Axis::Block).then_some(self.block);
        let padding = self.padding(*axis);
        let most = if self.levels().len() > MAX_LEVELS { SHOWN - 1 } else { SHOWN };
        let mut cells = Vec::new();
        for (index, is_after_gap) in shown(self.geometry.count(*axis), also, most) {
            if is_after_gap {
                cells.push(Cell::bar("…".to_string(), Style::Gap));
            }
            let inside = match axis {
                Axis::Outer => Inside { outer: index, ..inside },
                Axis::Block => Inside { is_of_block: index == self.block, ..inside },
                _ => inside,
            };
            let label = self.index_label(*axis, index);
            let style = match axis {
                Axis::Block if inside.is_of_block => Style::Highlighted,
                _ => Style::Plain,
            };
            if !inner.is_empty() {
                cells.push(self.container(label, style, inner, inside, padding));
                continue;
            }
            let row = Cell::bar(label, Style::Row { outer: inside.outer, is_of_block: inside.is_of_block });
            match padding {
                0 => cells.push(row),
                _ => cells.push(Cell::group(
                    vec![row, Cell::bar(format!("+ {padding} B"), Style::Padding)],
                    Direction::Right,
                )),
            }
        }
        cells
    }

    /// Bytes from the end of what an index contains to the next index.
    fn padding(&self, axis: Axis) -> u64 {
        let geometry = self.geometry;
        let order = geometry.order();
        let inner = order.within().iter().skip_while(|other| **other != axis).nth(1);
        let content =
            inner.map_or(geometry.element_size(), |inner| geometry.stride(*inner) * geometry.count(*inner));
        geometry.stride(axis).saturating_sub(content)
    }

    /// Letter, name, indices, stride and a note of each axis.
    fn rows(&self) -> Vec<[String; 5]> {
        let geometry = self.geometry;
        let row = |axis: &Axis| {
            let (stride, note) = match (geometry.region_step(*axis), self.padding(*axis)) {
                (0, 0) => (format!("{} B", geometry.stride(*axis)), String::new()),
                (0, padding) => (
                    format!("{} B", geometry.stride(*axis)),
                    format!("{padding} B after each do not belong to it (hatched)"),
                ),
                (_, _) => ("–".to_string(), "a region per index".to_string()),
            };
            [
                axis.letter().to_string(),
                axis.name().to_string(),
                geometry.count(*axis).to_string(),
                stride,
                note,
            ]
        };
        geometry.order().axes().iter().map(row).collect()
    }

    fn table(&self, out: &mut String, rows: &[[String; 5]], top: u32) {
        let columns = [MARGIN, MARGIN + 32, MARGIN + 132, MARGIN + 212, MARGIN + 332];
        let mut line = |y: u32, weight: &str, cells: &[String; 5]| {
            for (x, cell) in columns.iter().zip(cells) {
                let _ = writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\" font-size=\"11\" font-family=\"{MONO}\" font-weight=\"{weight}\">{cell}</text>"
                );
            }
        };
        line(top, "bold", &["", "axis", "indices", "stride", ""].map(String::from));
        for (index, row) in rows.iter().enumerate() {
            line(top + (index as u32 + 1) * LINE, "normal", row);
        }
    }
}

/// The indices of an axis to show, and whether some before are left out.
fn shown(count: u64, also: Option<u64>, most: u64) -> Vec<(u64, bool)> {
    let mut indices: Vec<u64> = match count <= most {
        true => (0..count).collect(),
        false => (0..most - 1).chain([count - 1]).collect(),
    };
    indices.extend(also);
    indices.sort_unstable();
    indices.dedup();
    let mut next = 0;
    let with_gaps = indices.into_iter().map(|index| {
        let is_after_gap = index > next;
        next = index + 1;
        (index, is_after_gap)
    });
    with_gaps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Arrangement, Dimensions, LayoutKind, Order, Strides};

    fn drawn(order: &str, strides: Strides) -> String {
        let kind = LayoutKind::Ordered(Arrangement { order: Order::parse(order).unwrap(), strides });
        let dimensions = Dimensions { num_blocks: 100, num_layers: 40, ..Dimensions::small() };
        svg(&[("", &Geometry::new(dimensions, kind).unwrap())], 42)
    }

    fn count(picture: &str, part: &str) -> usize {
        picture.matches(part).count()
    }

    #[test]
    fn the_block_is_highlighted_wherever_a_part_of_it_is() {
        let contiguous = drawn("BLONHC", Strides::default());
        assert_eq!(count(&contiguous, ">block 42<"), 1);
        let planes = drawn("LBONHC", Strides::default());
        assert_eq!(count(&planes, ">block 42<"), 2, "layers 0 and 39 are shown");
        for name in [">block 0<", ">block 99<", ">layer 39<", ">token 15<", ">head 7<", ">keys<", ">values<"]
        {
            assert!(planes.contains(name), "{name}");
        }
        assert!(!planes.contains(">block 41<"));
    }

    #[test]
    fn strides_padding_and_regions_are_stated() {
        let padded = drawn("L/BONHC", Strides::default().with(Axis::Block, 5000));
        assert!(
            padded.contains(">+ 904 B<")
                && padded.contains(">5000 B<")
                && padded.contains("904 B after each do not belong to it")
        );
        assert!(padded.contains(">region 0, layer 0<") && padded.contains(">region 39, layer 39: the same<"));
        assert!(!drawn("L/BONHC", Strides::default()).contains("do not belong to it"));
    }

    #[test]
    fn parts_are_drawn_below_each_other_with_their_names() {
        let geometry = Geometry::new(Dimensions::small(), LayoutKind::FullyContiguous).unwrap();
        let picture = svg(&[("data", &geometry), ("a<b&c", &geometry)], 2);
        assert_eq!(count(&picture, ">block 2<"), 2);
        assert_eq!((count(&picture, "<svg "), count(&picture, "</svg>")), (3, 3));
        assert!(picture.contains(">part data<") && picture.contains(">part a&lt;b&amp;c<"));
    }

    #[test]
    fn a_picture_has_a_size_whatever_the_order() {
        for order in ["BLONHC", "L/OBHNC", "LO/HCBN", "OBHNLC", "LHBNOC", "LONH/BC"] {
            let picture = drawn(order, Strides::default());
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            assert!(picture.len() < 400_000, "{order}: {}", picture.len());
            assert_eq!(count(&picture, "<text "), count(&picture, "</text>"));
        }
    }
}
