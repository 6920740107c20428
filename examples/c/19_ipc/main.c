// SPDX-License-Identifier: Apache-2.0
// GPU memory goes to another process by the driver's IPC handle, which the engine sends itself.
#include "../two_processes.h"

#include <kvmem.h>
#include <kvmem/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES (4u << 20)

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* The 64 bytes, and what else the other process needs to open exactly this memory. */
static kvmem_ipc_options export_region(const kvmem_region *region, kvmem_error **error)
{
    kvmem_region_info info;
    kvmem_ipc_handle handle;
    check(kvmem_region_get_info(region, &info, error), error);
    check(kvmem_ipc_export(info.address, &handle, error), error);
    kvmem_ipc_options options = {.struct_size = sizeof options, .size = info.size,
        .offset = handle.offset, .base_size = handle.base_size, .buffer_id = handle.buffer_id};
    memcpy(options.handle, handle.handle, sizeof options.handle);
    return options; /* the importer sets `device`: kvmem_cuda_find_device(handle.uuid) */
}

/* Keeps the memory until the other process has closed its end. */
static void give(int socket)
{
    kvmem_device_options memory = {.struct_size = sizeof memory, .size = BYTES};
    kvmem_region *region;
    kvmem_error *error = NULL;
    char closed;

    check(kvmem_region_create_device(&memory, &region, &error), &error);
    kvmem_ipc_options options = export_region(region, &error);
    if (send(socket, &options, sizeof options, MSG_NOSIGNAL) != (ssize_t)sizeof options) fail("send");
    if (recv(socket, &closed, 1, 0) != 0) fail("receive");
    kvmem_region_destroy(region);
}

static void take(int socket)
{
    kvmem_ipc_options options;
    kvmem_region *region;
    kvmem_region_info info;
    kvmem_error *error = NULL;

    if (recv(socket, &options, sizeof options, MSG_WAITALL) != (ssize_t)sizeof options) fail("receive");
    check(kvmem_region_open_ipc(&options, &region, &error), &error);
    check(kvmem_region_get_info(region, &info, &error), &error);
    printf("the other process has opened %d MiB of the GPU\n", (int)(info.size >> 20));
    kvmem_region_destroy(region);
}

int main(int argc, char **argv) { return run_two_processes(argc, argv, give, take); }
