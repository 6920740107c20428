// SPDX-License-Identifier: Apache-2.0
// Layouts of several parts over NIXL: exported, imported, read and written, with all parts or some. The
// result is compared with transfers of each part between host layouts.
#include "harness.h"
#include "parts.h"

static const kvmem_block_pair pairs[] = {{7, 2}, {1, 5}, {2, 6}, {3, 7}, {0, 0}};

/* The far agent has a cache, and the near agent imports it. */
typedef struct world {
    kvmem_agent *near_agent, *far_agent;
    kvmem_layout *here, *there, *remote, *expected_here, *expected_there;
} world;

static void world_open(world *w) {
    w->near_agent = agent_open("near");
    w->far_agent = agent_open("far");
    w->here = parts_build_system(parts_shapes, PARTS, w->near_agent);
    w->expected_here = parts_build_system(parts_shapes, PARTS, NULL);
    w->there = parts_build_system(parts_reordered, PARTS, w->far_agent);
    w->expected_there = parts_build_system(parts_reordered, PARTS, NULL);
    agents_introduce(w->near_agent, w->far_agent);
    w->remote = layout_import(w->near_agent, w->there);
    parts_fill(parts_shapes, PARTS, w->here, 1);
    parts_fill(parts_shapes, PARTS, w->expected_here, 1);
    parts_fill(parts_reordered, PARTS, w->there, 50);
    parts_fill(parts_reordered, PARTS, w->expected_there, 50);
}

static void world_close(world *w) {
    CALL(kvmem_layout_destroy(w->remote));
    CALL(kvmem_layout_destroy(w->here));
    CALL(kvmem_layout_destroy(w->there));
    CALL(kvmem_layout_destroy(w->expected_here));
    CALL(kvmem_layout_destroy(w->expected_there));
    CALL(kvmem_agent_destroy(w->near_agent));
    CALL(kvmem_agent_destroy(w->far_agent));
}

static void check(const world *w) {
    parts_check_same(parts_shapes, PARTS, w->here, w->expected_here);
    parts_check_same(parts_reordered, PARTS, w->there, w->expected_there);
}

TEST(an_imported_layout_has_the_parts) {
    OPENED(world, w);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, w.remote);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_REMOTE);
    CHECK_EQ(info.num_parts, PARTS);
    CHECK_EQ(info.num_regions, 3 * PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        OWN(kvmem_layout, remote, kvmem_layout_get_part, w.remote, parts_reordered[i].name);
        OWN(kvmem_layout, local, kvmem_layout_get_part, w.there, parts_reordered[i].name);
        GET(kvmem_block, here, kvmem_layout_get_row, remote, 8, 2, 0, 3, 0);
        GET(kvmem_block, there, kvmem_layout_get_row, local, 8, 2, 0, 3, 0);
        CHECK_EQ(here.address, there.address);
        CHECK_EQ(here.size, there.size);
    }
    CHECK_STR(layout_info(w.remote).agent, "far");
}

TEST(all_parts_are_read_and_written) {
    OPENED(world, w);
    kv_job options = JOB(it.run.pairs = pairs,
                                             it.run.num_pairs = NUM(pairs));
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        options.transfer.flags = by_layer ? KVMEM_TRANSFER_BY_LAYER : 0;
        options.transfer.method = by_layer ? KVMEM_METHOD_NIXL : KVMEM_METHOD_NIXL_STAGED;
        OWN(kvmem_transfer, out, kv_prepare, w.here, w.remote, &options);
        RUN(out);
        RUN(out);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, out);
        CHECK_EQ(info.method, options.transfer.method);
        options.transfer.method = 0;
        parts_run_apart(parts_reordered, PARTS, w.expected_here, w.expected_there, &options);
        check(&w);
        parts_fill(parts_reordered, PARTS, w.there, 70);
        parts_fill(parts_reordered, PARTS, w.expected_there, 70);
        options.transfer.method = by_layer ? KVMEM_METHOD_NIXL_STAGED : KVMEM_METHOD_NIXL;
        kv_run_with(w.remote, w.here, &options);
        options.transfer.method = 0;
        parts_run_apart(parts_reordered, PARTS, w.expected_there, w.expected_here, &options);
        check(&w);
    }
}

TEST(tokens_and_some_parts_are_read_with_a_notification) {
    OPENED(world, w);
    const char *const names[] = {"scales", "data"};
    const uint32_t from[] = {8, 4, 1}, to[] = {0, 3, 5, 7};
    const kvmem_block_table source = {from, NUM(from), 1, 1}, destination = {to, NUM(to), 3, 1};
    kv_job tables =
        JOB(it.run.source_table = &source, it.run.destination_table = &destination,
                it.run.num_tokens = 11, it.transfer.source_head = 1, it.transfer.num_heads = 1, it.transfer.destination_head = 0);
    kv_run_with(w.remote, w.here, REF(WITH(tables, it.transfer.parts = names,
                                           it.transfer.num_parts = NUM(names),
                                           it.run.notification = "read", it.run.notification_size = 4)));
    const part_shape selected[] = {parts_reordered[0], parts_reordered[1]};
    parts_run_apart(selected, NUM(selected), w.expected_there, w.expected_here, &tables);
    check(&w);
}

/* A single part to a layout without parts. */
TEST(a_single_part_of_a_remote_layout_moves) {
    OPENED(world, w);
    const kv_job options = JOB(it.run.pairs = pairs,
                                                   it.run.num_pairs = NUM(pairs));
    parts_run_apart(&parts_reordered[2], 1, w.remote, w.here, &options);
    parts_run_apart(&parts_reordered[2], 1, w.expected_there, w.expected_here, &options);
    check(&w);
}

TEST(parts_of_different_agents_cannot_be_combined) {
    OPENED(world, w);
    OWN(kvmem_layout, here, kvmem_layout_get_part, w.here, "data");
    OWN(kvmem_layout, there, kvmem_layout_get_part, w.there, "data");
    OWN(kvmem_layout, remote, kvmem_layout_get_part, w.remote, "data");
    OWN(kvmem_layout, plain, kvmem_layout_get_part, w.expected_here, "data");
    const kvmem_layout *others[] = {there, remote, plain};
    for (size_t i = 0; i < NUM(others); i++) {
        const kvmem_layout_part parts[] = {{"one", here}, {"other", others[i]}};
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "part 'one' is known to agent 'near' and part 'other' ",
               kvmem_layout_combine, parts, 2);
    }
    REFUSE(KVMEM_STATUS_INVALID_STATE, "part 'data': the layout was built without an agent",
           kvmem_layout_export,
           w.expected_here);
}
