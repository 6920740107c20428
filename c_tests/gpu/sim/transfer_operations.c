// SPDX-License-Identifier: Apache-2.0
// Transfers by every method except the staged one, to every tier; checksums and verification.
#include "operations.h"

#include "captured_move.h"
#include "control.h"
#include "layouts.h"
#include "moves.h"

static kv_side host;
static kvmem_layout *disk;

void operations_open(void) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kv_side_open(&host, &config, NULL, 1);
    disk = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    moves_open();
}

void operations_close(void) {
    moves_close();
    kvmem_layout_destroy(disk);
    kv_side_close(&host);
}

static kvmem_status move(const kvmem_layout *source, const kvmem_layout *destination) {
    return move_by(source, destination, 0, WITHOUT_STREAM);
}

OPERATION(copy_to_a_device) {
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build_layout(true, &kv_kinds[1], &layout);
    THEN(status, move(host.layout, layout));
    return status;
}

OPERATION_CALL(copy_from_a_device, copy_from_a_device_by(0, WITHOUT_STREAM))

/* With slots of one piece, so that a run wraps around the ring. */
static kvmem_status move_by_disk(bool to_disk) {
    kv_job options = kv_job_of(&small_move);
    OWNED(kvmem_layout) device = NULL;
    moving moving;
    kvmem_status status = build_layout(true, &kv_kinds[1], &device);
    options.transfer.staging_size = 4 * kv_piece_size(&host.config);
    if (status == KVMEM_STATUS_OK) {
        const contents contents =
            to_disk ? small_contents(device, disk) : small_contents(disk, device);
        status = create_moving(&contents, &options, &moving);
    }
    THEN(status, run_move(&moving, WITHOUT_STREAM));
    return status;
}

OPERATION_CALL(copy_from_a_device_to_disk, move_by_disk(true))
OPERATION_CALL(copy_from_disk_to_a_device, move_by_disk(false))
OPERATION_CALL(copy_by_batch, copy_from_a_device_by(KVMEM_METHOD_CUDA_BATCH, WITHOUT_STREAM))
OPERATION_CALL(copy_by_kernel, copy_from_a_device_by(KVMEM_METHOD_CUDA_KERNEL, WITHOUT_STREAM))
OPERATION_CALL(copy_by_kernel_on_a_stream, copy_from_a_device_by(KVMEM_METHOD_CUDA_KERNEL, ON_A_STREAM))
OPERATION_CALL(copy_one_by_one_on_a_stream, copy_from_a_device_by(KVMEM_METHOD_CUDA_COPY, ON_A_STREAM))

/* A transfer that is created with one block and submitted with others. */
static kvmem_status move_new_pairs(const kvmem_layout *source, const kvmem_layout *destination,
                                   uint32_t method,
                                   start start) {
    const kv_move first = KV_MOVE(3, {3, 3});
    const kv_job options = WITH(kv_job_of(&first), it.transfer.method = method);
    const contents contents = small_contents(source, destination);
    kvmem_submit_options step = {.struct_size = sizeof(step)};
    step.pairs = small_move.pairs;
    step.num_pairs = small_move.num_pairs;
    moving moving;
    kvmem_status status = create_moving(&contents, &options, &moving);
    if (status != KVMEM_STATUS_OK) return status;
    status = start == ON_A_STREAM
        ? kvmem_transfer_submit_on_stream(moving.transfer, &step, moves_stream(), ERR)
        : kvmem_transfer_submit(moving.transfer, &step, ERR);
    return end_move(&moving, status);
}

OPERATION(copy_new_pairs) {
    return copy_from_a_device_as(move_new_pairs, 0, WITHOUT_STREAM);
}

OPERATION(copy_new_pairs_on_a_stream) {
    return copy_from_a_device_as(move_new_pairs, KVMEM_METHOD_CUDA_KERNEL, ON_A_STREAM);
}

/* Adjacent blocks of one side are not adjacent on the other. */
static kvmem_status copy_in_rows_as(move_function *as) {
    OWNED(kvmem_layout) pinned = NULL;
    OWNED(kvmem_layout) device = NULL;
    kvmem_status status = build_both(&kv_kinds[2], &pinned, &device);
    THEN(status, as(pinned, device, KVMEM_METHOD_CUDA_2D, WITHOUT_STREAM));
    return status;
}

OPERATION_CALL(copy_in_rows, copy_in_rows_as(move_by))
OPERATION_CALL(copy_by_a_graph_of_copies,
               copy_from_a_device_as(move_by_graph, KVMEM_METHOD_CUDA_COPY, ON_A_STREAM))

OPERATION(copy_by_a_graph_of_a_kernel) {
    return copy_from_a_device_as(move_by_graph, KVMEM_METHOD_CUDA_KERNEL, ON_A_STREAM);
}

OPERATION_CALL(copy_by_a_graph_of_rows, copy_in_rows_as(move_by_graph))

/* Blocks of 8 tokens with 6 elements of 2 bytes, whose tokens are innermost on one side. */
#define TOKENS 8
#define ELEMENTS 6

static kvmem_layout_config transposed_config(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = 2, it.num_layers = 1, it.outer_dim = 1,
                   it.page_size = TOKENS,
                   it.inner_dim = ELEMENTS, it.dtype_width = 2, it.order = order);
}

static uint64_t memory_of(const kvmem_layout *layout) {
    const kvmem_layout_info strides = layout_info(layout);
    return strides.bases[0];
}

static kvmem_status transpose(const kvmem_layout *source, const kvmem_layout *destination, start start) {
    static const kvmem_block_pair pairs[] = {{0, 1}, {1, 0}};
    const kv_job options = JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                                                   it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    uint16_t elements[2 * TOKENS * ELEMENTS];
    for (uint16_t i = 0; i < NUM(elements); i++) elements[i] = i;
    SIM(sim_copy_bytes(memory_of(source), (uintptr_t)elements, sizeof(elements)));
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(source, destination, &options, &transfer, ERR);
    THEN(status, submit_move(transfer, start));
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    if (status != KVMEM_STATUS_OK) return status;
    SIM(sim_copy_bytes((uintptr_t)elements, memory_of(destination), sizeof(elements)));
    for (size_t i = 0; i < NUM(elements); i++) {
        const size_t block = i / TOKENS / ELEMENTS, element = i / TOKENS % ELEMENTS, token = i % TOKENS;
        CHECK_EQ(elements[i], ((1 - block) * TOKENS + token) * ELEMENTS + element);
    }
    return status;
}

static kvmem_status transpose_new(start start) {
    const kvmem_layout_config from = transposed_config("BNC"), to = transposed_config("BCN");
    OWNED(kvmem_layout) device = NULL;
    OWNED(kvmem_layout) pinned = NULL;
    kvmem_status status = build_on_device(0, &from, &device);
    THEN(status, build_pinned(0, &to, &pinned));
    THEN(status, transpose(device, pinned, start));
    return status;
}

OPERATION_CALL(transpose_elements, transpose_new(WITHOUT_STREAM))
OPERATION_CALL(transpose_elements_on_a_stream, transpose_new(ON_A_STREAM))

static kvmem_status verify(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method,
                           start start) {
    moving moving;
    const kvmem_status status = create_move(source, destination, method, KV_VERIFY, &moving);
    return status == KVMEM_STATUS_OK ? run_move(&moving, start) : status;
}

OPERATION_CALL(copy_and_verify, copy_from_a_device_as(verify, KVMEM_METHOD_CUDA_KERNEL, WITHOUT_STREAM))
OPERATION_CALL(copy_and_verify_on_a_stream, copy_from_a_device_as(verify, KVMEM_METHOD_CUDA_COPY,
                                                                  ON_A_STREAM))

OPERATION(compute_checksums) {
    static const uint32_t blocks[] = {6, 0, 3};
    uint32_t checksums[NUM(blocks)] = {0};
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build_layout(true, &kv_kinds[1], &layout);
    if (status == KVMEM_STATUS_OK) {
        const contents contents = small_contents(layout, layout);
        contents_fill(&contents);
        status = kvmem_layout_checksum(layout, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums, ERR);
    }
    for (size_t i = 0; i < NUM(blocks) && status == KVMEM_STATUS_OK; i++)
        CHECK_EQ(checksums[i], contents_checksum(layout, blocks[i]));
    return status;
}

/* Moves blocks from one extent to another. */
static kvmem_status move_elastic(kvmem_layout *layout, uint32_t method) {
    const kv_move across = KV_MOVE(2, {0, 3}, {1, 2});
    kv_job options = WITH(kv_job_of(&across), it.transfer.method = method);
    const contents contents = {layout, layout, &across, 4};
    moving moving;
    const kvmem_status status = create_moving(&contents, &options, &moving);
    return status == KVMEM_STATUS_OK ? run_move(&moving, WITHOUT_STREAM) : status;
}

static kvmem_status copy_elastic(uint32_t method) {
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build_elastic_layout(&layout);
    THEN(status, kvmem_layout_resize(layout, 4, ERR));
    THEN(status, move_elastic(layout, method));
    return status;
}

OPERATION_CALL(copy_elastic_by_kernel, copy_elastic(KVMEM_METHOD_CUDA_KERNEL))
OPERATION_CALL(copy_elastic_one_by_one, copy_elastic(KVMEM_METHOD_CUDA_COPY))
