// SPDX-License-Identifier: Apache-2.0
//! What a run with a limit of time moves, for the error if it takes longer.

use std::sync::Arc;

use crate::layout::{Layout, Memory};
use crate::nixl::MemoryType;
use crate::plan::Plan;
use crate::run::TransferMethod;

/// A method, and the peer or the store if there is one.
pub fn described(method: TransferMethod, sides: [&Arc<Layout>; 2], plan: &Plan) -> String {
    let peer = sides.into_iter().find_map(|side| match side.memory() {
        Memory::Remote(remote) => Some(remote.peer.name()),
        Memory::Local(_) => None,
    });
    let block_storage = || sides.into_iter().find_map(|side| side.memory().store());
    match (peer, first_object(sides, plan).or_else(block_storage)) {
        (Some(peer), _) => format!("{method} with agent '{peer}'"),
        (None, Some(storage)) => format!("{method} with {storage}"),
        (None, None) => method.to_string(),
    }
}

/// The first object of a plan, if one side is objects, and its store.
fn first_object([source, destination]: [&Arc<Layout>; 2], plan: &Plan) -> Option<String> {
    let first = plan.moves().next()?;
    let [from, to] = [
        (source, first.source_region, first.source),
        (destination, first.destination_region, first.destination),
    ];
    let is_of_objects = |(layout, ..): &(&Arc<Layout>, u32, u64)| layout.memory_type() == MemoryType::Object;
    let (objects, region, address) = [from, to].into_iter().find(is_of_objects)?;
    let has_others = objects.object_content(region).is_some_and(|content| plan.bytes() > content);
    Some(objects.stored_object(region, address, has_others))
}
