// SPDX-License-Identifier: Apache-2.0
// The kvmem process of a test with a program that does not use kvmem. It shares, opens, fills and verifies
// memory on request. A request and its reply are words in one packet of a Unix socket, with an optional file
// descriptor. A failure is printed and ends the process.
#include "driver.h"
#include "mapped.h"

#include <inttypes.h>
#include <sys/socket.h>

#define LINE 1024
/* Exported memory starts inside its allocation, so that a client that ignores the offset fails. */
#define OFFSET 4096

/* The memory that requests apply to: the memory shared or opened last, on device 0. */
typedef struct current {
    kvmem_region *region;
    mapped mapped;
    uint64_t address;
    uint64_t size;
} current;

static current now;

/* A request or a reply; fd is -1 if there is none. */
typedef struct packet {
    char text[LINE];
    int fd;
} packet;

/* The same as pattern() in peer.py. */
static unsigned char *make_pattern(uint64_t size, unsigned seed) {
    unsigned char *bytes = test_allocate(size);
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i + 3 * (i >> 8) + 7 * (i >> 16) + 13 * (uint64_t)seed);
    return bytes;
}

static void fill(unsigned seed) {
    unsigned char *bytes = make_pattern(now.size, seed);
    write_device(0, now.address, bytes, now.size);
    free(bytes);
}

static void verify(unsigned seed) {
    unsigned char *expected = make_pattern(now.size, seed);
    unsigned char *bytes = test_allocate(now.size);
    read_device(0, bytes, now.address, now.size);
    CHECK_BYTES(bytes, expected, now.size);
    free(expected);
    free(bytes);
}

static void drop(void) {
    kvmem_region_destroy(now.region);
    unmap_memory(&now.mapped);
    now = (current){0};
}

static void to_hex(const uint8_t *bytes, size_t size, char *text) {
    for (size_t i = 0; i < size; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void from_hex(const char *text, uint8_t *bytes, size_t size) {
    CHECK_EQ(strlen(text), 2 * size);
    for (size_t i = 0; i < size; i++) CHECK_EQ(sscanf(text + 2 * i, "%2" SCNx8, &bytes[i]), 1);
}

/* allocate SIZE SEED */
static void allocate(uint64_t size, unsigned seed, packet *reply) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = size + OFFSET);
    EXPECT_OK(kvmem_region_create_device(&options, &now.region, ERR));
    now.address = region_info(now.region).address + OFFSET;
    now.size = size;
    fill(seed);
    GET(kvmem_ipc_handle, shared, kvmem_ipc_export, now.address);
    char handle[2 * sizeof(shared.handle) + 1];
    char uuid[2 * sizeof(shared.uuid) + 1];
    to_hex(shared.handle, sizeof(shared.handle), handle);
    to_hex(shared.uuid, sizeof(shared.uuid), uuid);
    snprintf(reply->text, sizeof(reply->text),
             "ok handle=%s uuid=%s base_size=%" PRIu64 " offset=%" PRIu64 " buffer_id=%" PRIu64, handle, uuid,
             shared.base_size, shared.offset, shared.buffer_id);
}

/* open HANDLE UUID OFFSET SIZE BASE_SIZE BUFFER_ID */
static void open_handle(const char *text) {
    char handle[129];
    char uuid[33];
    kvmem_ipc_options options = OPTIONS(kvmem_ipc_options);
    CHECK_EQ(sscanf(text, "open %128s %32s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, handle, uuid,
                    &options.offset, &options.size, &options.base_size, &options.buffer_id), 6);
    uint8_t bytes[16];
    from_hex(handle, options.handle, sizeof(options.handle));
    from_hex(uuid, bytes, sizeof(bytes));
    EXPECT_OK(kvmem_cuda_find_device(bytes, &options.device, ERR));
    CHECK_EQ(options.device, 0);
    EXPECT_OK(kvmem_region_open_ipc(&options, &now.region, ERR));
    now.address = region_info(now.region).address;
    now.size = options.size;
}

static void map(kvmem_vmm_memory *memory, uint64_t size) {
    now.mapped = map_memory(memory, 0, size, KVMEM_ACCESS_READ_WRITE);
    now.address = now.mapped.address;
    now.size = size;
}

/* create SIZE SEED */
static void create(uint64_t size, unsigned seed, packet *reply) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = KVMEM_VMM_POSIX_FD, it.size = size);
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_create, &options);
    EXPECT_OK(kvmem_vmm_memory_export_fd(memory, &reply->fd, ERR));
    map(memory, size);
    fill(seed);
}

/* import SIZE, with a descriptor */
static void import(uint64_t size, int fd) {
    GET(kvmem_vmm_memory *, memory, kvmem_vmm_memory_import_fd, fd, size, 0);
    close(fd);
    map(memory, size);
}

static bool receive(int socket, packet *request) {
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {request->text, sizeof(request->text) - 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    CHECK(received >= 0);
    request->text[received] = '\0';
    request->fd = -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(&request->fd, CMSG_DATA(header), sizeof(request->fd));
    return received > 0;
}

static void send_reply(int socket, packet *reply) {
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {reply->text, strlen(reply->text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (reply->fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(reply->fd));
        memcpy(CMSG_DATA(header), &reply->fd, sizeof(reply->fd));
    }
    CHECK_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), strlen(reply->text));
    if (reply->fd >= 0) close(reply->fd);
}

static void serve(const packet *request, packet *reply) {
    char verb[16] = "";
    uint64_t size = 0;
    unsigned seed = 0;
    const int words = sscanf(request->text, "%15s %" SCNu64 " %u", verb, &size, &seed);
    if (strcmp(verb, "allocate") == 0 && words == 3) allocate(size, seed, reply);
    else if (strcmp(verb, "create") == 0 && words == 3) create(size, seed, reply);
    else if (strcmp(verb, "open") == 0) open_handle(request->text);
    else if (strcmp(verb, "import") == 0 && words == 2) import(size, request->fd);
    else if (strcmp(verb, "fill") == 0 && words == 2) fill((unsigned)size);
    else if (strcmp(verb, "verify") == 0 && words == 2) verify((unsigned)size);
    else if (strcmp(verb, "drop") == 0) drop();
    else FAIL("no such request: %s", request->text);
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    const int socket = atoi(argv[1]);
    packet request;
    while (receive(socket, &request)) {
        packet reply = {"ok", -1};
        serve(&request, &reply);
        send_reply(socket, &reply);
    }
    drop();
    return EXIT_SUCCESS;
}
