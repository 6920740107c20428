// SPDX-License-Identifier: Apache-2.0
// Both sides of the owner: what the test asks, and what the process does.
#include "owner.h"

#include "filled.h"
#include "mapped.h"

enum { ALLOCATE = 1, CREATE, LOOK, FREE, DONE };

#define MOST 8

typedef struct request {
    uint64_t size;
    uint64_t offset;
    int32_t device;
    uint32_t value;
} request;

/* Memory it has made: a region, or a mapping of what it exported. */
typedef struct holding {
    kvmem_region *region;
    mapped mapped;
    uint64_t address;
    uint64_t size;
    int device;
} holding;

static holding holdings[MOST];
static size_t num_holdings;

static holding *add_holding(const request *wanted) {
    CHECK(num_holdings < MOST);
    holding *added = &holdings[num_holdings++];
    *added = (holding){.size = wanted->size, .device = wanted->device};
    return added;
}

static void allocate(int socket, const request *wanted) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = wanted->device,
                                           it.size = wanted->size);
    holding *made = add_holding(wanted);
    EXPECT_OK(kvmem_region_create_device(&options, &made->region, ERR));
    made->address = region_info(made->region).address;
    fill_device(made->device, made->address, made->size, (unsigned char)wanted->value);
    GET(kvmem_ipc_handle, handle, kvmem_ipc_export, made->address + wanted->offset);
    frame_send(socket, DONE, &handle, sizeof(handle));
}

static void create(int socket, const request *wanted) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_POSIX_FD,
                                        it.size = wanted->size, it.id = wanted->device);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    GET(int32_t, fd, kvmem_vmm_memory_export_fd, memory);
    holding *made = add_holding(wanted);
    made->mapped = map_memory(memory, wanted->device, wanted->size, KVMEM_ACCESS_READ_WRITE);
    made->address = made->mapped.address;
    fill_device(made->device, made->address, made->size, (unsigned char)wanted->value);
    send_fd(socket, fd);
    close(fd);
}

static void free_all(void) {
    while (num_holdings > 0) {
        const holding *made = &holdings[--num_holdings];
        kvmem_region_destroy(made->region);
        unmap_memory(&made->mapped);
    }
}

static void look(const request *wanted) {
    const holding *made = &holdings[num_holdings - 1];
    check_device(made->device, made->address, made->size, (unsigned char)wanted->value);
}

static void serve(int socket, uint32_t tag, const request *wanted) {
    switch (tag) {
    case ALLOCATE:
        allocate(socket, wanted);
        return;
    case CREATE:
        create(socket, wanted);
        return;
    case LOOK: look(wanted); break;
    case FREE: free_all(); break;
    default: FAIL("no such request: %u", tag);
    }
    frame_send(socket, DONE, "", 0);
}

void owner_role(int socket) {
    uint32_t tag = 0;
    for (request wanted; frame_next_into(socket, &tag, &wanted, sizeof(wanted));) serve(socket, tag, &wanted);
    free_all();
}

peer owner_start(void) { return peer_start("owner"); }

static void ask(const peer *owner, uint32_t tag, request wanted) {
    frame_send(owner->socket, tag, &wanted, sizeof(wanted));
}

kvmem_ipc_handle owner_allocate(const peer *owner, int device, uint64_t size, uint64_t offset,
                                unsigned char value) {
    ask(owner, ALLOCATE, (request){size, offset, device, value});
    kvmem_ipc_handle handle;
    frame_expect_into(owner->socket, DONE, &handle, sizeof(handle));
    return handle;
}

int owner_create(const peer *owner, int device, uint64_t size, unsigned char value) {
    ask(owner, CREATE, (request){size, 0, device, value});
    return receive_fd(owner->socket);
}

void owner_check(const peer *owner, unsigned char value) {
    ask(owner, LOOK, (request){.value = value});
    frame_await(owner->socket, DONE);
}

void owner_free(const peer *owner) {
    ask(owner, FREE, (request){0});
    frame_await(owner->socket, DONE);
}
