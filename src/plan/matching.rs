// SPDX-License-Identifier: Apache-2.0
//! Which part of one layout is moved to which part of another: those of the same name.

use std::collections::HashSet;

use crate::base::{Result, ensure, fail};
use crate::layout::{Layout, LayoutPart, names};

/// Source and destination of each part that is moved, in the order of names. `wanted` are the names of the parts to move;
/// without names, both layouts must have the same parts.
pub fn matched<'a>(
    source: &'a Layout,
    destination: &'a Layout,
    wanted: &[&str],
) -> Result<Vec<[LayoutPart<'a>; 2]>> {
    for (name, other, layout, without) in
        [("source", "destination", source, destination), ("destination", "source", destination, source)]
    {
        ensure!(
            layout.num_parts() == 0 || without.num_parts() > 0,
            InvalidArgument,
            "the {name} layout has the parts {}, and the {other} layout has none; get the part to move with \
             kvmem_layout_get_part, or combine the {other} layout from such parts",
            names(layout.parts().map(|part| part.name))
        );
    }
    match wanted {
        [] => all(source, destination),
        wanted => some(source, destination, wanted),
    }
}

fn all<'a>(source: &'a Layout, destination: &'a Layout) -> Result<Vec<[LayoutPart<'a>; 2]>> {
    let sides = [source, destination].map(|side| side.parts().map(|part| part.name).collect::<HashSet<_>>());
    for (name, side, other, layout) in
        [("source", 0, "destination", source), ("destination", 1, "source", destination)]
    {
        let unmatched = layout.parts().map(|part| part.name).find(|part| !sides[1 - side].contains(part));
        if let Some(part) = unmatched {
            let of_other = if side == 0 { destination } else { source };
            fail!(
                InvalidArgument,
                "part '{part}' of the {name} layout is not in the {other} layout, whose parts are {}; name the parts to move",
                names(of_other.parts().map(|part| part.name))
            );
        }
    }
    Ok(source.parts().zip(destination.parts()).map(|(one, other)| [one, other]).collect())
}

fn some<'a>(
    source: &'a Layout,
    destination: &'a Layout,
    wanted: &[&str],
) -> Result<Vec<[LayoutPart<'a>; 2]>> {
    let mut names = wanted.to_vec();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        fail!(InvalidArgument, "part '{}' is selected twice; name it once", pair[0].escape_debug());
    }
    let find = |side: &str, layout: &'a Layout, name: &str| {
        let found = layout.parts().find(|part| part.name == name && layout.num_parts() > 0);
        found.ok_or_else(|| layout.no_part(name).context(format!("the {side} of the transfer")))
    };
    let both = |name: &&str| Ok([find("source", source, name)?, find("destination", destination, name)?]);
    names.iter().map(both).collect()
}
