// SPDX-License-Identifier: Apache-2.0
//! A copy as a part of graphs that the program captures: on its own method, or on another one that can be captured.

use std::sync::Arc;

use super::work::sequence::TaskSequence;
use crate::base::Result;
use crate::copy::gpu::{DescriptorSlot, DeviceState};
use crate::engine::explain::estimate;
use crate::run::TransferMethod;

/// The method that a copy takes in graphs, if it is not its own.
#[derive(Clone, Copy, Debug)]
pub struct GraphMethod {
    pub method: TransferMethod,
    pub seconds: f64,
}

impl GraphMethod {
    /// A line for people about a copy of so many bytes, whose own method is `own`.
    pub fn line(&self, own: TransferMethod, bytes: u64) -> String {
        let reason = match own {
            TransferMethod::CudaStaged => "staging memory is shared with other transfers",
            _ => "each copy would be a node of the graph",
        };
        let rate = (bytes as f64 / self.seconds) as u64;
        format!("in a graph: {}{}, because {reason}\n", self.method, estimate(rate))
    }
}

/// The tasks of graphs, and their descriptors.
pub struct CapturedCopy {
    /// One, or one per layer.
    pub tasks: Arc<TaskSequence>,
    /// It lives as long as the graphs.
    pub slot: Option<Arc<DescriptorSlot>>,
}

impl CapturedCopy {
    pub fn new(tasks: Arc<TaskSequence>, device: &DeviceState) -> Result<Self> {
        let slot = tasks.slot_for_graphs(device)?;
        Ok(Self { tasks, slot })
    }
}
