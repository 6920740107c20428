// SPDX-License-Identifier: Apache-2.0
// Builds two layouts, moves blocks between them, and releases everything, also after a failure.
#include "moves.h"

#include "driver.h"
#include "layouts.h"

static CUstream stream;

void moves_open(void) {
    retain_device(0);
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

void moves_close(void) {
    CU_ON(0, cuStreamDestroy_v2(stream));
    release_device(0);
}

CUstream moves_stream(void) { return stream; }

kvmem_status submit_move(kvmem_transfer *transfer, start start) {
    return start == ON_A_STREAM ? kvmem_transfer_submit_on_stream(transfer, NULL, stream, ERR)
                                : kvmem_transfer_submit(transfer, NULL, ERR);
}

const kv_move small_move = KV_MOVE(3, {6, 0}, {0, 5});

contents small_contents(const kvmem_layout *source, const kvmem_layout *destination) {
    return (contents){source, destination, &small_move, 7};
}

kvmem_status create_moving(const contents *contents, const kv_job *options, moving *made) {
    *made = (moving){.contents = *contents};
    contents_fill(contents);
    return kv_prepare(contents->source, contents->destination, options, &made->transfer, ERR);
}

kvmem_status create_move(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method,
                         uint64_t flags, moving *made) {
    const contents scattered = small_contents(source, destination);
    kv_job options = WITH(kv_job_of(&small_move), it.transfer.method = method,
                                          KV_SET_FLAGS(flags));
    return create_moving(&scattered, &options, made);
}

kvmem_status end_move(moving *moving, kvmem_status submitted) {
    kvmem_status status = submitted;
    THEN(status, kvmem_transfer_wait(moving->transfer, PATIENCE, ERR));
    if (status == KVMEM_STATUS_OK) contents_check_moved(&moving->contents);
    kvmem_transfer_destroy(moving->transfer);
    return status;
}

kvmem_status run_move(moving *moving, start start) {
    return end_move(moving, submit_move(moving->transfer, start));
}

kvmem_status move_by(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method,
                     start start) {
    moving moving;
    const kvmem_status status = create_move(source, destination, method, 0, &moving);
    return status == KVMEM_STATUS_OK ? run_move(&moving, start) : status;
}

kvmem_status copy_from_a_device_as(move_function *as, uint32_t method, start start) {
    OWNED(kvmem_layout) pinned = NULL;
    OWNED(kvmem_layout) device = NULL;
    kvmem_status status = build_both(&kv_kinds[1], &pinned, &device);
    THEN(status, as(device, pinned, method, start));
    return status;
}

kvmem_status copy_from_a_device_by(uint32_t method, start start) {
    return copy_from_a_device_as(move_by, method, start);
}
