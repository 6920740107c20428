// SPDX-License-Identifier: Apache-2.0
//! Selects the engine for two layouts, by their memory types.

use std::sync::Arc;

use super::Engine;
use crate::base::{Result, ensure, fail};
use crate::cuda::{CallerStream, Capture};
use crate::engine::direct::cuda::CudaCopy;
use crate::engine::direct::host::HostCopy;
use crate::engine::file::DiskMove;
use crate::engine::peer::{self, NixlMove};
use crate::engine::preferences::{Ending, Preferences};
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::plan::Plan;
use crate::run::{PartSequence, TransferMethod};

/// The method between two layouts, or one of several that the engine compares. NIXL moves blocks between a local file and
/// host memory only if the caller requests it. Fails if the requested method is not possible.
pub fn method(
    source: &Layout,
    destination: &Layout,
    requested: Option<TransferMethod>,
) -> Result<TransferMethod> {
    let possible = methods(source, destination)?;
    match requested {
        Some(requested) if !possible.contains(&requested) => {
            let names: Vec<_> = possible.iter().map(ToString::to_string).collect();
            fail!(
                Unsupported,
                "method {requested} is not possible from {} to {}; possible: {}",
                place(source),
                place(destination),
                names.join("; ")
            )
        }
        Some(TransferMethod::Nixl) => Ok(TransferMethod::Nixl),
        _ => Ok(possible[0]),
    }
}

/// Fails if a method can move no blocks between two layouts: because of the caller's flags, or because no agent of NIXL knows both.
/// Checked once for all runs of a transfer.
pub fn ensure_possible(
    method: TransferMethod,
    sides: [&Arc<Layout>; 2],
    preferences: &Preferences,
) -> Result<()> {
    if let Some(file) = sides.into_iter().find(|side| side.memory_type() == MemoryType::File) {
        ensure_no_page_cache(file, preferences)?;
    }
    let [source, destination] = sides;
    let has_agent = method != TransferMethod::Memcpy
        && !method.is_cuda()
        && !DiskMove::takes(method, source, destination);
    if has_agent { peer::ensure_possible(sides, preferences) } else { Ok(()) }
}

/// Fails if the page cache would be used, and the caller excludes any memory between source and destination.
fn ensure_no_page_cache(file: &Layout, preferences: &Preferences) -> Result<()> {
    ensure!(
        !preferences.zero_copy || file.is_direct(),
        Unsupported,
        "bytes of a buffered file pass through the page cache, which the flags exclude; open it for direct I/O"
    );
    Ok(())
}

fn place(layout: &Layout) -> String {
    let owner = if layout.memory().is_remote() { " of a peer" } else { "" };
    format!("tier {}{owner}", layout.memory().tier().name())
}

/// The methods between the memory of two layouts.
fn methods(source: &Layout, destination: &Layout) -> Result<&'static [TransferMethod]> {
    use MemoryType::{Block, Dram, File, Object};
    use TransferMethod::{
        Cuda2d, CudaBatch, CudaCopy, CudaKernel, CudaStaged, Memcpy, Nixl, NixlServed, NixlStaged, Pread,
        Uring,
    };
    let side = |layout: &Layout| (layout.memory().is_remote(), layout.memory_type());
    Ok(match (side(source), side(destination)) {
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
        ((true, _), _) | (_, (true, _)) => &[Nixl, NixlStaged, NixlServed],
        ((_, Dram), (_, Dram)) => &[Memcpy],
        ((_, Object), _) | (_, (_, Object)) => &[Nixl, NixlStaged],
        ((_, Block), _) | (_, (_, Block)) => &[Nixl],
        ((_, File), _) | (_, (_, File)) => &[Uring, Pread, Nixl],
        _ => &[CudaCopy, CudaBatch, Cuda2d, CudaKernel, CudaStaged],
    })
}

/// As [`OnStreams::check_stream`](super::OnStreams::check_stream) of the engine of a method, before it is prepared. If that does not run
/// on streams, returns `None`.
pub fn check_stream(
    method: TransferMethod,
    sides: [&Arc<Layout>; 2],
    stream: CallerStream,
) -> Result<Option<Capture>> {
    if method.is_cuda() { CudaCopy::check_stream_first(sides, stream) } else { Ok(None) }
}

/// Prepares the engine of a method.
pub fn prepare(
    method: TransferMethod,
    sides @ [source, destination]: [&Arc<Layout>; 2],
    plan: Plan,
    preferences: &Preferences,
    ending: Ending,
) -> Result<Box<dyn Engine>> {
    if method == TransferMethod::Memcpy {
        return Ok(Box::new(HostCopy::new(plan, preferences.by_layer)));
    }
    if method.is_cuda() {
        return Ok(Box::new(CudaCopy::prepare(source, destination, plan, preferences)?));
    }
    let divide = |plan: Plan| match preferences.by_layer {
        true => (0..plan.layers().count).map(|layer| plan.layer(layer)).collect(),
        false => vec![plan],
    };
    if DiskMove::takes(method, source, destination) {
        let ordered = divide(DiskMove::in_file_order(source, &plan)?);
        let prepare = |(plan, ordered): (Plan, Plan)| {
            DiskMove::prepare(source, destination, &plan, ordered, preferences)
        };
        let parts: Vec<_> = divide(plan).into_iter().zip(ordered).map(prepare).collect::<Result<_>>()?;
        return Ok(Box::new(PartSequence::new(parts)));
    }
    let plans: Vec<_> = divide(plan);
    // The peer is notified after the last byte, and epochs that are right then prove all bytes before.
    let last = plans.len() - 1;
    let (Ending { verifies, mut notification, epochs }, mut preferences) = (ending, preferences.clone());
    let prepare = |(index, plan)| {
        let notification = if index == last { notification.take() } else { None };
        if sides.iter().any(|side| side.memory_type() == MemoryType::Object) {
            return NixlMove::with_objects(sides, &plan, &preferences);
        }
        if !sides.iter().any(|side| side.memory().is_remote()) {
            return NixlMove::prepare(sides, plan, notification);
        }
        let epochs = epochs.clone().filter(|_| index == last);
        let ending = |notification| Ending { verifies, notification, epochs };
        let part = NixlMove::with_peer(sides, plan, &preferences, ending(notification))?;
        // All layers take the method of the first.
        preferences.method = Some(part.method());
        Ok(part)
    };
    let parts: Vec<_> = plans.into_iter().enumerate().map(prepare).collect::<Result<_>>()?;
    Ok(Box::new(PartSequence::new(parts)))
}
