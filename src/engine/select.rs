// SPDX-License-Identifier: Apache-2.0
//! Selects the engine for two layouts, by their memory types.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::Engine;
use crate::base::error::{Result, ensure, fail};
use crate::engine::direct::cuda::CudaCopy;
use crate::engine::direct::host::HostCopy;
use crate::engine::file::DiskMove;
use crate::engine::peer::{self, NixlMove};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::plan::Plan;
use crate::run::path::TransferPath;
use crate::run::steps::PartSequence;

/// The path between two layouts, or one of several that the engine compares. NIXL moves blocks between a local file and
/// host memory only if the caller requests it. Fails if the requested path is not possible.
pub fn path(source: &Layout, destination: &Layout, requested: Option<TransferPath>) -> Result<TransferPath> {
    let natural = natural_path(source, destination, requested)?;
    if let Some(requested) = requested {
        ensure!(
            natural == requested || natural.is_alike(requested),
            Unsupported,
            "path {requested} is not possible from {} to {}; possible: {natural}",
            place(source),
            place(destination)
        );
    }
    Ok(natural)
}

fn place(layout: &Layout) -> String {
    let owner = if layout.memory().is_remote() { " of a peer" } else { "" };
    format!("tier {}{owner}", layout.memory().tier().name())
}

fn natural_path(
    source: &Layout,
    destination: &Layout,
    requested: Option<TransferPath>,
) -> Result<TransferPath> {
    use MemoryType::{Block, Dram, File, Object};
    let side = |layout: &Layout| (layout.memory().is_remote(), layout.memory_type());
    match (side(source), side(destination)) {
        ((true, _), (true, _)) => fail!(
            Unsupported,
            "both layouts are remote; let one of their owners move the blocks, or move them through a local layout"
        ),
        ((false, File), (false, File)) => {
            fail!(Unsupported, "both layouts are on disk; move the blocks through a host layout")
        }
        ((false, from), (false, to)) if from.is_storage() && to.is_storage() => {
            let name = |layout: &Layout| layout.memory().tier().name();
            fail!(
                Unsupported,
                "the layouts are on tier {} and tier {}, both storage; move the blocks through a host layout",
                name(source),
                name(destination)
            )
        }
        ((true, _), (_, storage)) | ((_, storage), (true, _)) if storage.is_storage() => {
            let local = if source.memory().is_remote() { destination } else { source };
            fail!(
                Unsupported,
                "NIXL can't move blocks between a peer and a layout on tier {}; move them through a host layout",
                local.memory().tier().name()
            )
        }
        ((true, _), (false, _)) => Ok(TransferPath::NixlRead),
        ((false, _), (true, _)) => Ok(TransferPath::NixlWrite),
        ((false, Dram), (false, Dram)) => Ok(TransferPath::Memcpy),
        ((false, Object), (false, _)) => Ok(TransferPath::NixlObjectRead),
        ((false, _), (false, Object)) => Ok(TransferPath::NixlObjectWrite),
        ((false, Block), (false, _)) => Ok(TransferPath::NixlBlockRead),
        ((false, _), (false, Block)) => Ok(TransferPath::NixlBlockWrite),
        ((false, File), (false, _)) if requested == Some(TransferPath::NixlFileRead) => {
            Ok(TransferPath::NixlFileRead)
        }
        ((false, _), (false, File)) if requested == Some(TransferPath::NixlFileWrite) => {
            Ok(TransferPath::NixlFileWrite)
        }
        ((false, File), (false, Dram)) | ((false, Dram), (false, File)) => Ok(TransferPath::Uring),
        ((false, File), (false, _)) | ((false, _), (false, File)) => Ok(TransferPath::UringStaged),
        ((false, _), (false, _)) => Ok(TransferPath::CudaCopy),
    }
}

/// Prepares the engine of a path.
pub fn prepare(
    path: TransferPath,
    sides @ [source, destination]: [&Arc<Layout>; 2],
    plan: Plan,
    preferences: &Preferences,
    notification: Option<Vec<u8>>,
) -> Result<Box<dyn Engine>> {
    if path == TransferPath::Memcpy {
        return Ok(Box::new(HostCopy::new(plan, preferences.by_layer)));
    }
    if path.is_cuda() {
        return Ok(Box::new(CudaCopy::prepare(source, destination, plan, preferences)?));
    }
    let divide = |plan: Plan| match preferences.by_layer {
        true => (0..plan.layers().count).map(|layer| plan.layer(layer)).collect(),
        false => vec![plan],
    };
    if DiskMove::takes(path, source, destination) {
        let ordered = divide(DiskMove::in_file_order(source, &plan)?);
        let prepare = |(plan, ordered): (Plan, Plan)| {
            DiskMove::prepare(source, destination, &plan, ordered, preferences)
        };
        let parts: Vec<_> = divide(plan).into_iter().zip(ordered).map(prepare).collect::<Result<_>>()?;
        return Ok(Box::new(PartSequence::new(parts)));
    }
    let plans: Vec<_> = divide(plan);
    peer::ensure_allowed(path, sides, preferences)?;
    // The peer is notified after the last byte.
    let last = plans.len() - 1;
    let (mut notification, mut preferences) = (notification, preferences.clone());
    let prepare = |(index, plan)| {
        let notification = if index == last { notification.take() } else { None };
        if path.has_objects() {
            return NixlMove::with_objects(sides, path, &plan, &preferences);
        }
        if !path.has_peer() {
            return NixlMove::prepare(source, destination, path, plan, notification);
        }
        let part = NixlMove::with_peer(sides, path, plan, &preferences, notification)?;
        // All layers take the path of the first.
        preferences.path = Some(part.path());
        Ok(part)
    };
    let parts: Vec<_> = plans.into_iter().enumerate().map(prepare).collect::<Result<_>>()?;
    Ok(Box::new(PartSequence::new(parts)))
}
