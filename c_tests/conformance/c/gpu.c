/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of GPUs, and of regions that need the driver. */
#include "calls.h"

static int32_t device_of(struct step *step)
{
    return (int32_t)number_of(step, "device");
}

static kvmem_status create_pinned(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_pinned_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", pinned_flags);
    SET(options, size);
    options.device = device_of(step);
    return kvmem_region_create_pinned(&options, &made->region, error);
}

static kvmem_status create_device(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_device_options options = {.struct_size = sizeof(options)};
    SET(options, size);
    options.device = device_of(step);
    return kvmem_region_create_device(&options, &made->region, error);
}

static kvmem_status create_elastic(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_elastic_options options = {.struct_size = sizeof(options)};
    SET(options, size);
    SET(options, extent_size);
    options.device = device_of(step);
    return kvmem_region_create_elastic(&options, &made->region, error);
}

static kvmem_status cuda_info(struct step *step, kvmem_error **error)
{
    kvmem_cuda_info info;
    const kvmem_status status = kvmem_cuda_get_info(&info, error);
    if (status < 0) return status;
    add_number(step, "driver_version", (uint64_t)info.driver_version);
    add_number(step, "device_count", (uint64_t)info.device_count);
    return status;
}

static kvmem_status device_info(struct step *step, kvmem_error **error)
{
    kvmem_cuda_device_info info;
    const kvmem_status status = kvmem_cuda_get_device_info(device_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, total_memory);
    NUMBER(info, can_access);
    NUMBER(info, compute_capability_major);
    NUMBER(info, compute_capability_minor);
    NUMBER(info, multiprocessors);
    return status;
}

const struct call gpu_calls[] = {
    {"region_create_pinned", .create = create_pinned, .type = REGION},
    {"region_create_device", .create = create_device, .type = REGION},
    {"region_create_elastic", .create = create_elastic, .type = REGION},
    {"cuda_get_info", .run = cuda_info},
    {"cuda_get_device_info", .run = device_info},
    {.name = NULL},
};
