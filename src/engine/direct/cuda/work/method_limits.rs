// SPDX-License-Identifier: Apache-2.0
//! Prepares a copy by a method, whatever its estimated duration.

use std::sync::Arc;

use super::copy_task::CopyTask;
use super::sequence::TaskSequence;
use super::staged::StagedCopy;
use crate::base::{Result, fail};
use crate::copy::gpu::device::staging;
use crate::copy::gpu::division::Division;
use crate::copy::gpu::driver_copies::DriverCopies;
use crate::copy::gpu::kernel_copies::KernelCopy;
use crate::copy::gpu::rates::Rates;
use crate::copy::gpu::{CopyDirection, CudaSides, DeviceState, launch};
use crate::cuda::Patience;
use crate::engine::cost::gpu::ctas::ctas_beside;
use crate::engine::preferences::Preferences;
use crate::plan::Plan;
use crate::run::TransferMethod;

/// Default size of staging memory: the bytes that the link transfers while kvmem's kernel waits for a large one.
const STAGING: u64 = 128 << 20;
/// Default size without concurrent compute: kernel and copy engine alternate sooner.
const STAGING_ALONE: u64 = 64 << 20;

/// The resources that the copies of a transfer may use, by any method. They are the same for each of its layers.
#[derive(Clone, Copy, Debug)]
pub struct MethodLimits {
    /// Number of CTAs of a kernel between source and destination.
    pub ctas: u32,
    /// Number of CTAs of a kernel between device and staging memory.
    staging_ctas: u32,
    staging_size: u64,
    max_parts: u64,
}

impl MethodLimits {
    /// The caller's limits, or the defaults for moves of `move_size` bytes.
    pub fn new(
        direction: CopyDirection,
        preferences: &Preferences,
        multiprocessors: u32,
        move_size: u64,
        rates: &Rates,
    ) -> Self {
        let computes = !preferences.compute_is_idle;
        let ctas = match (computes, direction) {
            (true, CopyDirection::ToDevice | CopyDirection::ToHost) => {
                ctas_beside(direction, multiprocessors, move_size, rates.in_direction(direction))
            }
            _ => launch::ctas(direction, computes, multiprocessors, move_size),
        };
        let limited = |ctas: u32| match preferences.max_ctas {
            0 => ctas,
            most => ctas.min(most),
        };
        Self {
            ctas: limited(ctas),
            staging_ctas: limited(launch::staging_ctas(computes)),
            staging_size: match preferences.staging_size {
                0 if computes => STAGING,
                0 => STAGING_ALONE,
                given => given,
            },
            max_parts: staging::staging_parts(computes),
        }
    }

    /// Divides a plan into chunks for staging memory.
    pub fn divide(&self, sides: &CudaSides, plan: &Plan) -> Result<Division> {
        Division::new(plan, sides.to_host(), self.staging_size, self.max_parts)
    }

    /// Prepares the copies of a plan as one task, or as one per layer.
    pub fn prepare_all(
        &self,
        sides: &CudaSides,
        device: &Arc<DeviceState>,
        plan: &Plan,
        by_layer: bool,
        method: TransferMethod,
        patience: &Patience,
    ) -> Result<TaskSequence> {
        if !by_layer {
            return Ok(TaskSequence::one(self.prepare(sides, device, plan, method, patience)?, None));
        }
        let layers = 0..plan.layers().count;
        let prepare = |layer| self.prepare(sides, device, &plan.layer(layer), method, patience);
        TaskSequence::by_layer(layers.map(prepare).collect::<Result<_>>()?)
    }

    /// Loads the kernels of a method, so that preparing it later loads none.
    pub fn load_kernels(
        &self,
        device: &DeviceState,
        plan: &Plan,
        method: TransferMethod,
        patience: &Patience,
    ) -> Result<()> {
        match method {
            TransferMethod::CudaKernel => {
                device.kernel(patience)?.provide(KernelCopy::prepare(plan, self.ctas)?.launches(), patience)
            }
            _ => Ok(()),
        }
    }

    /// Prepares the copies of a plan.
    pub fn prepare(
        &self,
        sides: &CudaSides,
        device: &Arc<DeviceState>,
        plan: &Plan,
        method: TransferMethod,
        patience: &Patience,
    ) -> Result<CopyTask> {
        let task = match method {
            TransferMethod::CudaBatch => {
                let from_host = sides.direction == CopyDirection::ToDevice;
                CopyTask::Driver(DriverCopies::batch(sides, plan, from_host)?)
            }
            TransferMethod::Cuda2d => CopyTask::Driver(DriverCopies::rows(sides, plan)?),
            TransferMethod::CudaKernel => {
                let copy = KernelCopy::prepare(plan, self.ctas)?;
                let kernel = device.kernel(patience)?;
                kernel.provide(copy.launches(), patience)?;
                CopyTask::Kernel(copy, kernel)
            }
            TransferMethod::CudaStaged => {
                return self.prepare_staged(sides, device, plan, &self.divide(sides, plan)?, patience);
            }
            _ => CopyTask::Driver(DriverCopies::one_by_one(sides, plan)?),
        };
        sides.locks.check().map(|()| task)
    }

    /// Prepares a staged copy of a plan that is divided already.
    pub fn prepare_staged(
        &self,
        sides: &CudaSides,
        device: &Arc<DeviceState>,
        plan: &Plan,
        division: &Division,
        patience: &Patience,
    ) -> Result<CopyTask> {
        let Some(host) = sides.host() else {
            fail!(Unsupported, "neither side is host memory");
        };
        let copy = StagedCopy::prepare(sides, host, plan, division, self.staging_ctas)?;
        let kernel = device.kernel(patience)?;
        kernel.provide(copy.launches(), patience)?;
        // Allocated now, so that no run has to.
        copy.provide_staging(device)?;
        sides.locks.check().map(|()| CopyTask::Staged(Box::new(copy), kernel))
    }
}
