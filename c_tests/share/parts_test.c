// SPDX-License-Identifier: Apache-2.0
// A layout of several parts is opened in another process: all parts are mapped, in separate regions or
// interleaved in one.
#include "harness.h"
#include "parts.h"


static kvmem_layout *shareable(void) {
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    return parts_build(parts_shapes, PARTS,
                       REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                   it.system = &system)));
}

/* Data and scales of each row, in one region. */
enum { ROW = 44, DATA = 40 };

static kvmem_layout *in_rows(void) {
    kvmem_layout_part parts[2] = {{"data", NULL}, {"scales", NULL}};
    OWNED(kvmem_region) buffer = region_create_system(PARTS_BLOCKS * 8 * ROW, KVMEM_SYSTEM_SHAREABLE);
    for (size_t i = 0; i < 2; i++) {
        const uint64_t offset = i * DATA, size = i == 0 ? DATA : ROW - DATA;
        const kvmem_layout_config config =
            OPTIONS(kvmem_layout_config, it.num_blocks = PARTS_BLOCKS, it.num_layers = 1, it.outer_dim = 1,
                    it.page_size = 8, it.inner_dim = size, it.dtype_width = 1, it.order = "BNC",
                    it.token_stride = ROW, it.block_stride = 8 * ROW);
        OWN(kvmem_region, view, kvmem_region_create_view, buffer, offset, PARTS_BLOCKS * 8 * ROW - offset);
        parts[i].layout = regions_lay_out(&config, &view, 1, NULL);
    }
    GET(kvmem_layout *, combined, kvmem_layout_combine, parts, 2);
    kvmem_layout_destroy((kvmem_layout *)parts[0].layout);
    kvmem_layout_destroy((kvmem_layout *)parts[1].layout);
    return combined;
}

static void checksums_of(const kvmem_layout *layout, uint32_t checksums[PARTS_BLOCKS]) {
    const uint32_t blocks[PARTS_BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_OK(kvmem_layout_checksum(layout, blocks, PARTS_BLOCKS, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
}

/* The first regions of a cache belong to its parts, sorted by name. */
static void fill_regions(const kvmem_layout *layout, uint32_t seed) {
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    for (size_t i = 0; i < info.num_regions; i++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, layout, i);
        GET(kvmem_region_info, of_region, kvmem_region_get_info, region);
        kv_fill((unsigned char *)(uintptr_t)of_region.address, of_region.size, seed + (uint32_t)i);
    }
}

/* Shares a cache, sends the checksums of its blocks, and waits until the other process has written block
   5. */
static void export_cache(int socket, kvmem_layout *(*build)(void)) {
    OWNED(kvmem_layout) cache = build();
    fill_regions(cache, 3);
    OWN(kvmem_share, share, kvmem_share_create_layout, cache, NULL);
    EXPECT_OK(kvmem_share_send(share, socket, KVMEM_TIMEOUT_FOREVER, ERR));
    uint32_t checksums[PARTS_BLOCKS], written[PARTS_BLOCKS];
    checksums_of(cache, checksums);
    CHECK_EQ(write(socket, checksums, sizeof(checksums)), (ssize_t)sizeof(checksums));
    CHECK_EQ(read(socket, written, sizeof(written)), (ssize_t)sizeof(written));
    checksums_of(cache, checksums);
    CHECK_BYTES((unsigned char *)checksums, (unsigned char *)written, sizeof(written));
}

static void import_cache(int socket, kvmem_layout *(*build)(void), uint64_t num_parts) {
    OWN(kvmem_share, share, kvmem_share_receive, socket, KVMEM_TIMEOUT_FOREVER);
    uint32_t theirs[PARTS_BLOCKS], mine[PARTS_BLOCKS];
    CHECK_EQ(read(socket, theirs, sizeof(theirs)), (ssize_t)sizeof(theirs));
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    CHECK_EQ(info.object, KVMEM_SHARED_LAYOUT);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the share is of a layout, not of a region; open it by kvmem_share_open_layout", kvmem_share_open_region, share, NULL);
    OWN(kvmem_layout, mapped, kvmem_share_open_layout, share, NULL);
    GET(kvmem_layout_info, of_layout, kvmem_layout_get_info, mapped);
    CHECK_EQ(of_layout.locality, KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(of_layout.num_parts, num_parts);
    checksums_of(mapped, mine);
    CHECK_BYTES((unsigned char *)mine, (unsigned char *)theirs, sizeof(theirs));
    /* Moves blocks to a cache of this process, and one back. */
    OWNED(kvmem_layout) copy = build();
    const kvmem_block_pair there = {5, 2}, back = {7, 5};
    kv_job options = JOB(it.run.pairs = &there, it.run.num_pairs = 1,
                                             it.run.flags = KVMEM_SUBMIT_VERIFY);
    kv_run_with(mapped, copy, &options);
    fill_regions(copy, 9);
    options.run.pairs = &back;
    kv_run_with(copy, mapped, &options);
    uint32_t now[PARTS_BLOCKS];
    checksums_of(mapped, now);
    for (size_t i = 0; i < PARTS_BLOCKS; i++) CHECK((now[i] == theirs[i]) == (i != 5));
    CHECK_EQ(write(socket, now, sizeof(now)), (ssize_t)sizeof(now));
}

static void between_processes(kvmem_layout *(*build)(void), uint64_t num_parts) {
    int sockets[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    const pid_t owner = fork();
    CHECK(owner >= 0);
    if (owner == 0) {
        close(sockets[1]);
        export_cache(sockets[0], build);
        _exit(0);
    }
    close(sockets[0]);
    import_cache(sockets[1], build, num_parts);
    child_succeeds(owner);
    close(sockets[1]);
}

TEST(parts_are_mapped_in_another_process) {
    between_processes(shareable, PARTS);
}

TEST(interleaved_parts_are_mapped_in_another_process) {
    between_processes(in_rows, 2);
}

/* The owner's description of parts is checked like everything else. */
TEST(sharing_a_layout_of_parts_by_nixl_needs_an_agent) {
    OWNED(kvmem_layout) cache = shareable();
    REFUSE(KVMEM_STATUS_INVALID_STATE, "NIXL cannot access the layout: it was built without an agent",
           kvmem_share_create_layout, cache,
           REF(OPTIONS(kvmem_share_options, it.transport = KVMEM_SHARE_REMOTE)));
}
