// SPDX-License-Identifier: Apache-2.0
// Requests of the test, and the process that serves them.
#include "owner.h"

#include "filled.h"
#include "mapped.h"

enum { ALLOCATE = 1, CREATE, VERIFY, FREE, DONE };

#define MAX_ALLOCATIONS 8

typedef struct request {
    uint64_t size;
    uint64_t offset;
    int32_t device;
    uint32_t value;
} request;

/* Memory of the owner: a region, or a mapping of VMM memory. */
typedef struct allocation {
    kvmem_region *region;
    mapped mapped;
    uint64_t address;
    uint64_t size;
    int device;
} allocation;

static allocation allocations[MAX_ALLOCATIONS];
static size_t num_allocations;

static allocation *add_allocation(const request *request) {
    CHECK(num_allocations < MAX_ALLOCATIONS);
    allocation *added = &allocations[num_allocations++];
    *added = (allocation){.size = request->size, .device = request->device};
    return added;
}

static void allocate(int socket, const request *request) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = request->device,
                                           it.size = request->size);
    allocation *made = add_allocation(request);
    EXPECT_OK(kvmem_region_create_device(&options, &made->region, ERR));
    made->address = region_info(made->region).address;
    fill_device(made->device, made->address, made->size, (unsigned char)request->value);
    GET(kvmem_ipc_handle, handle, kvmem_ipc_export, made->address + request->offset);
    frame_send(socket, DONE, &handle, sizeof(handle));
}

static void create(int socket, const request *request) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_POSIX_FD,
                                        it.size = request->size, it.id = request->device);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    GET(int32_t, fd, kvmem_vmm_memory_export_fd, memory);
    allocation *made = add_allocation(request);
    made->mapped = map_memory(memory, request->device, request->size, KVMEM_ACCESS_READ_WRITE);
    made->address = made->mapped.address;
    fill_device(made->device, made->address, made->size, (unsigned char)request->value);
    send_fd(socket, fd);
    close(fd);
}

static void free_all(void) {
    while (num_allocations > 0) {
        const allocation *made = &allocations[--num_allocations];
        kvmem_region_destroy(made->region);
        unmap_memory(&made->mapped);
    }
}

static void verify(const request *request) {
    const allocation *made = &allocations[num_allocations - 1];
    check_device(made->device, made->address, made->size, (unsigned char)request->value);
}

static void serve(int socket, uint32_t tag, const request *request) {
    switch (tag) {
    case ALLOCATE:
        allocate(socket, request);
        return;
    case CREATE:
        create(socket, request);
        return;
    case VERIFY: verify(request); break;
    case FREE: free_all(); break;
    default: FAIL("no such request: %u", tag);
    }
    frame_send(socket, DONE, "", 0);
}

void owner_role(int socket) {
    uint32_t tag = 0;
    for (request request; frame_next_into(socket, &tag, &request, sizeof(request));)
        serve(socket, tag, &request);
    free_all();
}

peer owner_start(void) { return peer_start("owner"); }

static void send_request(const peer *owner, uint32_t tag, request request) {
    frame_send(owner->socket, tag, &request, sizeof(request));
}

kvmem_ipc_handle owner_allocate(const peer *owner, int device, uint64_t size, uint64_t offset,
                                unsigned char value) {
    send_request(owner, ALLOCATE, (request){size, offset, device, value});
    kvmem_ipc_handle handle;
    frame_expect_into(owner->socket, DONE, &handle, sizeof(handle));
    return handle;
}

int owner_create(const peer *owner, int device, uint64_t size, unsigned char value) {
    send_request(owner, CREATE, (request){size, 0, device, value});
    return receive_fd(owner->socket);
}

void owner_check(const peer *owner, unsigned char value) {
    send_request(owner, VERIFY, (request){.value = value});
    frame_await(owner->socket, DONE);
}

void owner_free(const peer *owner) {
    send_request(owner, FREE, (request){0});
    frame_await(owner->socket, DONE);
}
