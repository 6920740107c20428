// SPDX-License-Identifier: Apache-2.0
// Devices that do not reach each other's memory: said so, and blocks go from one to the other all the same.
#include "control.h"
#include "sides.h"
#include "stance.h"

static void copy(int from, int to) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    side source;
    side destination;
    side_open(&source, PLACE_DEVICE, from, &config, NULL, 1);
    side_open(&destination, PLACE_DEVICE, to, &config, NULL, 2);
    side_move(&source, &destination, &move);
    side_close(&source);
    side_close(&destination);
}

static void check_access(bool expected) {
    for (int device = 0; device < 2; device++) {
        kvmem_cuda_device_info info;
        EXPECT_OK(kvmem_cuda_get_device_info(device, &info, ERR));
        CHECK_EQ((info.can_access >> (1 - device)) & 1, expected);
        CHECK_EQ((info.can_access >> device) & 1, 1);
        bool can = !expected;
        EXPECT_OK(kvmem_cuda_can_access(device, 1 - device, &can, ERR));
        CHECK_EQ(can, expected);
        EXPECT_OK(kvmem_cuda_can_access(device, device, &can, ERR));
        CHECK(can);
        copy(device, 1 - device);
    }
}

static void with_and_without_peer_access_blocks_arrive(void) {
    SIM(sim_set_peer_access(true));
    check_access(true);
    SIM(sim_set_peer_access(false));
    check_access(false);
    SIM(sim_set_peer_access(true));
}

static const test_case cases[] = {
    CASE(with_and_without_peer_access_blocks_arrive),
};
GPU_MAIN
