// SPDX-License-Identifier: Apache-2.0
// Finds the device by its UUID, and opens the memory on it.
#include "shared_memory.h"

#include "caller_context.h"

kvmem_ipc_options ipc_options(const kvmem_ipc_handle *handle, uint64_t size) {
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    EXPECT_OK(kvmem_cuda_find_device(handle->uuid, &options.device, ERR));
    memcpy(options.handle, handle->handle, sizeof(options.handle));
    options.offset = handle->offset;
    options.size = size;
    options.base_size = handle->base_size;
    options.buffer_id = handle->buffer_id;
    return options;
}

kvmem_region *open_ipc(const kvmem_ipc_options *options) {
    return MADE(kvmem_region, kvmem_region_open_ipc, options);
}

void refuse_ipc(const kvmem_ipc_options *options, kvmem_status status, const char *part) {
    REFUSE(status, part, kvmem_region_open_ipc, options);
}

void shared_memory_open_at(shared_memory *shared, uint64_t size, uint64_t offset, unsigned char value) {
    shared->owner = owner_start();
    shared->handle = owner_allocate(&shared->owner, 0, size, offset, value);
    shared->options = ipc_options(&shared->handle, size - offset);
}

void shared_memory_open(shared_memory *shared, uint64_t size, unsigned char value) {
    shared_memory_open_at(shared, size, 0, value);
}

void shared_memory_close(shared_memory *shared) { peer_finish(&shared->owner); }
