// SPDX-License-Identifier: Apache-2.0
// The GPU's side has other bytes before each run.
#include "file_flight.h"

#include "stance.h"

void file_flight_open(file_flight *flight, const kv_move *move, kvmem_agent *agent, place place,
                      const kvmem_layout_config *config, uint64_t flags) {
    flight->move = move;
    flight->agent = agent;
    flight->directory = scratch_create(temporary_directory());
    side_open(&flight->device, place, 0, config, agent, 1);
    file_side_open(&flight->file, config, agent, &flight->directory, flags, 2);
}

void file_flight_close(file_flight *flight) {
    CALL(file_side_close(&flight->file));
    side_close(&flight->device);
    scratch_remove(&flight->directory);
    CALL(kvmem_agent_destroy(flight->agent));
}

uint32_t file_flight_nixl_path(bool to_file) {
    return to_file ? KVMEM_PATH_NIXL_FILE_WRITE : KVMEM_PATH_NIXL_FILE_READ;
}

kvmem_status file_flight_create(const file_flight *flight, bool to_file, uint32_t path, uint64_t flags,
                                kvmem_transfer **transfer) {
    kvmem_transfer_options options = WITH(kv_transfer_options(flight->move), it.path = path,
                                          it.flags = flags);
    const kvmem_layout *device = flight->device.model.layout;
    const kvmem_layout *file = flight->file.model.layout;
    const kvmem_status status =
        kvmem_transfer_create(to_file ? device : file, to_file ? file : device, &options, transfer, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_transfer_create");
    return status;
}

void file_flight_run(file_flight *flight, bool to_file, kvmem_transfer *transfer) {
    kv_side *source = to_file ? &flight->device.model : &flight->file.model;
    kv_side *destination = to_file ? &flight->file.model : &flight->device.model;
    for (uint32_t again = 0; again < 2; again++) {
        side_refill(&flight->device, 50 + again);
        RUN(transfer);
        kv_expect_moved(destination, source, flight->move);
        side_check(&flight->device);
        file_side_check(&flight->file);
    }
    CALL(kvmem_transfer_destroy(transfer));
}
