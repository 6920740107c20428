// SPDX-License-Identifier: Apache-2.0
// Transfers over NIXL between layouts of different orders and block sizes, compared with the same transfer
// between host layouts. unit.transfer_reshape compares that one with a copy element by element.
#include "harness.h"
#include "regions.h"

#define BLOCKS 9

typedef struct shape {
    const char *order;
    uint64_t tokens, heads;
} shape;

static const shape shapes[] = {{"BLONHC", 4, 4}, {"L/OBHNC", 2, 4}, {"L/BHNOC", 6, 4}, {"LO/BNHC", 4, 4},
                               {"OBHNLC", 3, 4}};
static const uint32_t source_ids[] = {7, 1, 3, 8, 0, 5}, destination_ids[] = {2, 5, 0, 8, 6, 1, 3};

static kvmem_layout_config config_of(const shape *shape) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = 3, it.outer_dim = 2,
                   it.page_size = shape->tokens, it.num_heads = shape->heads,
                   it.inner_dim = shape->heads * 24, it.dtype_width = 2, it.order = shape->order);
}

/* In system memory, or in a file; with an agent, registered with it. */
static kvmem_layout *build(const shape *shape, kvmem_agent *agent, bool in_file) {
    const kvmem_layout_config config = config_of(shape);
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = KVMEM_DISK_BUFFERED);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_ALLOCATE);
    options.system = in_file ? NULL : &system;
    options.disk = in_file ? &disk : NULL;
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

/* Calls `with` for each region of a host layout, and of another one of the same shape. */
static void each_region(const shape *shape, const kvmem_layout *layout, const kvmem_layout *other,
                        void (*with)(unsigned char *bytes, unsigned char *others, size_t size)) {
    const kvmem_layout_config config = config_of(shape);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    const kvmem_layout_info here = layout_info(layout);
    const kvmem_layout_info there = layout_info(other);
    for (uint64_t i = 0; i < here.num_regions; i++)
        with((unsigned char *)(uintptr_t)here.bases[i], (unsigned char *)(uintptr_t)there.bases[i],
             needs.region_size);
}

static void fill_both(unsigned char *bytes, unsigned char *others, size_t size) {
    static uint32_t seed;
    kv_fill(bytes, size, ++seed);
    memcpy(others, bytes, size);
}

static void compare(unsigned char *bytes, unsigned char *others, size_t size) {
    CHECK_BYTES(bytes, others, size);
}

static void run(const kvmem_layout *from, const kvmem_layout *to, const kv_job *options,
                uint32_t method) {
    OWN(kvmem_transfer, transfer, kv_prepare, from, to, options);
    RUN(transfer);
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.method, method);
}

/* Two agents. The near one moves blocks to and from memory of the far one. */
typedef struct pair {
    kvmem_agent *near;
    kvmem_agent *far;
} pair;

static void pair_open(pair *pair) {
    pair->near = agent_open("near");
    pair->far = agent_open("far");
}

static void pair_close(pair *pair) {
    kvmem_agent_destroy(pair->near);
    kvmem_agent_destroy(pair->far);
}

/* A small arena, so that there are several chunks. */
#define ARENA_SIZE (8 * 4096)

/* Tokens move between the shapes: read from the far agent's memory and written to it, with a descriptor per
   span, through an arena, and served by their owner. */
static void move_in_both_directions(const pair *pair, const shape *from, const shape *to,
                                    const kv_job *options) {
    for (int writes = 0; writes < 2; writes++) {
        OWNED(kvmem_layout) source = build(from, writes ? pair->near : pair->far, false);
        OWNED(kvmem_layout) destination = build(to, writes ? pair->far : pair->near, false);
        OWNED(kvmem_layout) expected = build(to, NULL, false);
        const kvmem_serve_options serve =
            OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.staging_size = ARENA_SIZE);
        EXPECT_OK(kvmem_layout_serve(writes ? destination : source, &serve, ERR));
        agents_introduce(pair->near, pair->far); /* with the layouts built since the last exchange */
        OWNED(kvmem_layout) remote = layout_import(pair->near, writes ? destination : source);
        static const uint32_t methods[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED,
                                           KVMEM_METHOD_NIXL_SERVED};
        for (int staged = 0; staged < 3; staged++) {
            const uint32_t method = methods[staged];
            each_region(from, source, source, fill_both);
            each_region(to, destination, expected, fill_both);
            run(source, expected, options, KVMEM_METHOD_MEMCPY);
            kv_job forced = *options;
            forced.transfer.method = method;
            /* Compared with the far agent's memory, too. Layers can't be. */
            if ((forced.transfer.flags & KVMEM_TRANSFER_BY_LAYER) == 0)
                forced.run.flags = KVMEM_SUBMIT_VERIFY;
            forced.transfer.staging_size = staged == 1 ? ARENA_SIZE : 0;
            run(writes ? source : remote, writes ? remote : destination, &forced, method);
            each_region(to, destination, expected, compare);
        }
        DESTROYED(kvmem_layout, remote);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(pair->near, "far", NULL, ERR));
    }
}

TEST(tokens_are_read_and_written_between_other_orders_and_sizes) {
    const kvmem_block_table source = {source_ids, NUM(source_ids), 3, 1},
                            destination = {destination_ids, NUM(destination_ids), 2, 1};
    const kv_job options = JOB(it.run.source_table = &source,
                                                   it.run.destination_table = &destination, it.run.num_tokens = 9);
    OPENED(pair, agents);
    for (size_t i = 0; i < NUM(shapes); i++) {
        for (size_t to = 0; to < NUM(shapes); to++)
            move_in_both_directions(&agents, &shapes[i], &shapes[to], &options);
    }
}

TEST(heads_are_read_and_written_by_range) {
    const kvmem_block_table source = {source_ids, NUM(source_ids), 0, 2},
                            destination = {destination_ids, NUM(destination_ids), 1, 1};
    const shape whole = {"L/OBNHC", 4, 4}, half = {"BLOHNC", 4, 2};
    kv_job from_whole =
        JOB(it.run.source_table = &source, it.run.destination_table = &destination,
                it.run.num_tokens = 11, it.transfer.source_head = 2, it.transfer.num_heads = 2);
    const kv_job to_whole = WITH(from_whole, it.transfer.source_head = 0, it.transfer.destination_head = 1);
    OPENED(pair, agents);
    move_in_both_directions(&agents, &whole, &half, &from_whole);
    move_in_both_directions(&agents, &half, &whole, &to_whole);
}

TEST(layers_of_other_orders_complete_in_order) {
    const kvmem_block_pair pairs[] = {{7, 2}, {1, 5}, {3, 0}};
    const kv_job options = JOB(it.run.pairs = pairs,
                                                   it.run.num_pairs = NUM(pairs), it.transfer.flags = KVMEM_TRANSFER_BY_LAYER);
    OPENED(pair, agents);
    move_in_both_directions(&agents, &shapes[0], &shapes[3], &options);
}

/* To a file and back, by the POSIX plugin. */
TEST(tokens_move_through_files_of_other_orders) {
    const uint32_t ids[] = {4, 0, 3, 1, 2, 5, 6};
    const kvmem_block_table source = {source_ids, NUM(source_ids), 3, 1}, kept = {ids, NUM(ids), 1, 1},
                            destination = {destination_ids, NUM(destination_ids), 2, 1};
    OWNED(kvmem_agent) agent = agent_open("offload");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    for (size_t i = 0; i < NUM(shapes); i++) {
        const shape *to = &shapes[(i + 2) % NUM(shapes)];
        kv_job whole =
            JOB(it.run.source_table = &source, it.run.destination_table = &destination,
                    it.run.num_tokens = 9);
        OWNED(kvmem_layout) memory = build(&shapes[i], agent, false);
        OWNED(kvmem_layout) file = build(&shapes[(i + 1) % NUM(shapes)], agent, true);
        OWNED(kvmem_layout) found = build(to, agent, false);
        OWNED(kvmem_layout) expected = build(to, NULL, false);
        each_region(&shapes[i], memory, memory, fill_both);
        each_region(to, found, expected, fill_both);
        run(memory, expected, &whole, KVMEM_METHOD_MEMCPY);
        run(memory, file,
            REF(WITH(whole, it.run.destination_table = &kept, it.transfer.method = KVMEM_METHOD_NIXL)),
            KVMEM_METHOD_NIXL);
        run(file, found, REF(WITH(whole, it.run.source_table = &kept,
                                  it.transfer.method = KVMEM_METHOD_NIXL)),
            KVMEM_METHOD_NIXL);
        each_region(to, found, expected, compare);
    }
}
