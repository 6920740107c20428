// SPDX-License-Identifier: Apache-2.0
// Layouts of several parts with GPU memory on either side, by each method, and elastic ones. The results are
// compared with transfers of each part between host layouts.
#include "elastic_side.h"
#include "engine.h"
#include "parts.h"
#include "caller_context.h"

static const kvmem_block_pair pairs[] = {{7, 2}, {1, 5}, {2, 6}, {3, 7}, {0, 0}};

static kvmem_layout *pinned(const part_shape *shapes, size_t count) {
    const kvmem_pinned_options memory = OPTIONS(kvmem_pinned_options);
    return parts_build(shapes, count, REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                  it.pinned = &memory)));
}

static kvmem_layout *on_device(const part_shape *shapes, size_t count) {
    const kvmem_device_options memory = OPTIONS(kvmem_device_options);
    return parts_build(shapes, count, REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                  it.device = &memory)));
}

static kvmem_layout *elastic(const part_shape *shapes, size_t count) {
    const kvmem_elastic_options memory = OPTIONS(kvmem_elastic_options);
    return parts_build(shapes, count, REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                  it.elastic = &memory)));
}

static void run(const kvmem_layout *from, const kvmem_layout *to, const kv_job *options) {
    OWN(kvmem_transfer, transfer, kv_prepare, from, to, options);
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK(options->transfer.method == 0 || info.method == options->transfer.method);
}

/* Copies the first blocks of a layout to another layout with the same parts. */
static void copy_blocks(const kvmem_layout *from, const kvmem_layout *to, uint32_t blocks) {
    kvmem_block_pair all[PARTS_BLOCKS];
    for (uint32_t i = 0; i < blocks; i++) all[i] = (kvmem_block_pair){i, i};
    run(from, to, REF(JOB(it.run.pairs = all, it.run.num_pairs = blocks)));
}

/* Host layouts: a filled source, the result of the transfer, and the expected result. */
typedef struct host {
    kvmem_layout *source, *found, *expected;
} host;

static void host_open(host *host) {
    host->source = pinned(parts_shapes, PARTS);
    host->found = pinned(parts_reordered, PARTS);
    host->expected = pinned(parts_reordered, PARTS);
    parts_fill(parts_shapes, PARTS, host->source, 1);
    parts_fill(parts_reordered, PARTS, host->found, 100);
    parts_fill(parts_reordered, PARTS, host->expected, 100);
}

static void host_close(host *host) {
    CALL(kvmem_layout_destroy(host->source));
    CALL(kvmem_layout_destroy(host->found));
    CALL(kvmem_layout_destroy(host->expected));
}

static void check_found(const host *host) {
    parts_check_same(parts_reordered, PARTS, host->found, host->expected);
}

/* To memory of the GPU, within it, and back. The staged method needs host memory on one side. */
static void move_by(uint32_t method, uint64_t flags) {
    RETAIN_DEVICE(0);
    OPENED(host, host);
    const kv_job moved = JOB(it.run.pairs = pairs,
                                                 it.run.num_pairs = NUM(pairs));
    const kv_job options = WITH(moved, it.transfer.method = method, KV_SET_FLAGS(flags));
    OWNED(kvmem_layout) source_on_device = on_device(parts_shapes, PARTS);
    OWNED(kvmem_layout) device = on_device(parts_reordered, PARTS);
    copy_blocks(host.source, source_on_device, PARTS_BLOCKS);
    parts_run_apart(parts_reordered, PARTS, host.source, host.expected, &moved);
    run(source_on_device, host.found, &options);
    check_found(&host);
    const kvmem_layout *const sources[] = {host.source, source_on_device};
    for (size_t i = 0; i < (method == KVMEM_METHOD_CUDA_STAGED ? 1 : NUM(sources)); i++) {
        parts_fill(parts_reordered, PARTS, host.found, 100);
        copy_blocks(host.found, device, PARTS_BLOCKS);
        run(sources[i], device, &options);
        copy_blocks(device, host.found, PARTS_BLOCKS);
        check_found(&host);
    }
}

TEST_CALL(on_the_selected_path, move_by(0, 0))
TEST_CALL(on_the_kernel_path, move_by(KVMEM_METHOD_CUDA_KERNEL, 0))
TEST_CALL(on_the_copy_path, move_by(KVMEM_METHOD_CUDA_COPY, 0))
TEST_CALL(on_the_staged_path, move_by(KVMEM_METHOD_CUDA_STAGED, 0))
TEST_CALL(by_layer, move_by(0, KVMEM_TRANSFER_BY_LAYER))
TEST_CALL(verified, move_by(0, KV_VERIFY))

TEST(tokens_of_all_parts_are_verified) {
    RETAIN_DEVICE(0);
    const uint32_t from[] = {8, 4, 1}, to[] = {0, 3, 5, 7};
    const kvmem_block_table source_table = {from, NUM(from), 1, 1}, destination_table = {to, NUM(to), 3, 1};
    const kv_job tables =
        JOB(it.run.source_table = &source_table,
                it.run.destination_table = &destination_table, it.run.num_tokens = 11, it.run.flags = KVMEM_SUBMIT_VERIFY);
    OPENED(host, host);
    OWNED(kvmem_layout) device = on_device(parts_reordered, PARTS);
    copy_blocks(host.found, device, PARTS_BLOCKS);
    run(host.source, device, &tables);
    parts_run_apart(parts_reordered, PARTS, host.source, host.expected, &tables);
    copy_blocks(device, host.found, PARTS_BLOCKS);
    check_found(&host);
}

TEST(some_parts_move_with_new_pairs) {
    RETAIN_DEVICE(0);
    const char *const names[] = {"indexer", "scales"};
    OPENED(host, host);
    OWNED(kvmem_layout) device = on_device(parts_reordered, PARTS);
    copy_blocks(host.found, device, PARTS_BLOCKS);
    const kv_job options = JOB(it.run.pairs = pairs, it.run.num_pairs = 1,
                                                   it.transfer.parts = names, it.transfer.num_parts = NUM(names));
    OWN(kvmem_transfer, transfer, kv_prepare, host.source, device, &options);
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = pairs,
                                              it.num_pairs = NUM(pairs));
    RUN_WITH(transfer, &step);
    const part_shape selected[] = {parts_reordered[0], parts_reordered[2]};
    parts_run_apart(selected, NUM(selected), host.source, host.expected,
                    REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs))));
    copy_blocks(device, host.found, PARTS_BLOCKS);
    check_found(&host);
}

TEST(all_parts_are_resized) {
    RETAIN_DEVICE(0);
    OWNED(kvmem_layout) cache = elastic(parts_shapes, PARTS);
    OWNED(kvmem_layout) source = pinned(parts_shapes, PARTS);
    OWNED(kvmem_layout) found = pinned(parts_shapes, PARTS);
    parts_fill(parts_shapes, PARTS, source, 1);
    parts_fill(parts_shapes, PARTS, found, 1);
    const kvmem_block_pair pair = {3, 3};
    const kv_job one = JOB(it.run.pairs = &pair, it.run.num_pairs = 1);
    OWN(kvmem_transfer, transfer, kv_prepare, source, cache, &one);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "", kvmem_transfer_submit(transfer, NULL, ERR));
    EXPECT_OK(kvmem_layout_resize(cache, PARTS_BLOCKS, ERR));
    RUN(transfer);
    copy_blocks(source, cache, PARTS_BLOCKS);
    parts_fill(parts_shapes, PARTS, found, 50);
    copy_blocks(cache, found, PARTS_BLOCKS);
    const kvmem_block_pair all[] = {{0, 0}, {1, 1}, {8, 8}};
    parts_check_blocks(source, found, all, NUM(all));
    parts_check_blocks(source, cache, all, NUM(all));
    EXPECT_OK(kvmem_layout_resize(cache, 0, ERR));
    for (size_t i = 0; i < PARTS; i++) {
        OWN(kvmem_layout, part, kvmem_layout_get_part, cache, parts_shapes[i].name);
        CHECK_EQ(elastic_layout_memory(part).num_committed, 0);
    }
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "", kvmem_transfer_submit(transfer, NULL, ERR));
}

/* If committing memory of one part fails, the parts before it are decommitted again. */
TEST(a_failed_resize_changes_no_part) {
    RETAIN_DEVICE(0);
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    /* A quarter of the memory per block; on a GPU all of it, so that not even one block takes it from other
       programs. */
    const uint64_t block = driver_is_stand_in() ? memory / 4 : memory;
    const part_shape shapes[] = {{"a", "L/BNC", 1, 1, 1, 0, 64, 1}, {"b", "L/BNC", 1, 1, 1, 0, block, 1}};
    OWNED(kvmem_layout) cache = elastic(shapes, NUM(shapes));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "part 'b'", kvmem_layout_resize(cache, PARTS_BLOCKS, ERR));
    for (size_t i = 0; i < NUM(shapes); i++) {
        OWN(kvmem_layout, part, kvmem_layout_get_part, cache, shapes[i].name);
        CHECK_EQ(elastic_layout_memory(part).num_committed, 0);
    }
}
