// SPDX-License-Identifier: Apache-2.0
// Transfers in several steps: staged, and by layer.
#include "operations.h"

#include "moves.h"

void operations_open(void) { moves_open(); }

void operations_close(void) { moves_close(); }

/* A stream waits for one layer, then for all. */
static kvmem_status move_by_layer(const kvmem_layout *source, const kvmem_layout *destination,
                                  uint32_t method,
                                  start start) {
    moving moving;
    kvmem_status status = create_move(source, destination, method, KVMEM_TRANSFER_BY_LAYER, &moving);
    THEN(status, submit_move(moving.transfer, start));
    THEN(status, kvmem_transfer_wait_on_stream(moving.transfer, 1, moves_stream(), ERR));
    THEN(status, kvmem_transfer_wait_on_stream(moving.transfer, 0, moves_stream(), ERR));
    return end_move(&moving, status);
}

OPERATION_CALL(copy_staged, copy_from_a_device_by(KVMEM_METHOD_CUDA_STAGED, WITHOUT_STREAM))
OPERATION_CALL(copy_staged_on_a_stream, copy_from_a_device_by(KVMEM_METHOD_CUDA_STAGED, ON_A_STREAM))
OPERATION_CALL(copy_by_layer, copy_from_a_device_as(move_by_layer, KVMEM_METHOD_CUDA_KERNEL, WITHOUT_STREAM))
OPERATION_CALL(copy_staged_by_layer, copy_from_a_device_as(move_by_layer, KVMEM_METHOD_CUDA_STAGED,
                                                           WITHOUT_STREAM))
OPERATION_CALL(copy_by_layer_on_a_stream,
               copy_from_a_device_as(move_by_layer, KVMEM_METHOD_CUDA_COPY, ON_A_STREAM))
