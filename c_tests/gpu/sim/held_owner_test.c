// SPDX-License-Identifier: Apache-2.0
// An owner that serves memory of a GPU which finishes no work: the request ends by the owner's limit, other peers are served,
// and the slots return when the GPU goes on. With stand-ins for the driver and for NIXL.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"
#include "stand_in.h"

#define STALL SECONDS(1)

/* An agent that serves two layouts: one in memory of a GPU and one in host memory. Another reads and writes both. */
typedef struct peers {
    kvmem_agent *near, *far;
    kv_side here;
    side of_gpu;
    kv_side of_host;
    kvmem_layout *remote_gpu, *remote_host;
} peers;

static void peers_open(peers *peers) {
    nixl_find_stand_in();
    NIXL(nixl_sim_set_routing(1));
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    peers->near = agent_open("near");
    peers->far = agent_open("far");
    kv_side_open(&peers->here, &config, peers->near, 1);
    CALL(side_open(&peers->of_gpu, PLACE_DEVICE, 0, &config, peers->far, 2));
    kv_side_open(&peers->of_host, &config, peers->far, 3);
    const kvmem_serve_options options = OPTIONS(
        kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE | KVMEM_SERVE_FROM_HOST, it.stall_timeout_ns = STALL);
    EXPECT_OK(kvmem_layout_serve(peers->of_gpu.model.layout, &options, ERR));
    EXPECT_OK(kvmem_layout_serve(peers->of_host.layout, &options, ERR));
    agents_introduce(peers->near, peers->far);
    peers->remote_gpu = layout_import(peers->near, peers->of_gpu.model.layout);
    peers->remote_host = layout_import(peers->near, peers->of_host.layout);
}

static void peers_close(peers *peers) {
    DESTROYED(kvmem_layout, peers->remote_gpu);
    DESTROYED(kvmem_layout, peers->remote_host);
    kv_side_close(&peers->here);
    CALL(side_close(&peers->of_gpu));
    kv_side_close(&peers->of_host);
    DESTROYED(kvmem_agent, peers->near);
    DESTROYED(kvmem_agent, peers->far);
    NIXL(nixl_sim_set_routing(0));
    SIM(sim_reset());
}

static kvmem_transfer *create(const peers *peers, const kvmem_layout *remote, bool reads) {
    return MADE(kvmem_transfer, kv_prepare, reads ? remote : peers->here.layout, reads ? peers->here.layout : remote,
                KV_JOB(&scattered_move, it.transfer.method = KVMEM_METHOD_NIXL_SERVED,
                       it.run.flags = KVMEM_SUBMIT_VERIFY));
}

/* Holds the GPU before its first work, or after it: then what computes the checksums waits for it. */
static void hold_owner(bool reads, uint64_t finished) {
    OPENED(peers, peers);
    OWNED(kvmem_transfer) held = create(&peers, peers.remote_gpu, reads);
    OWNED(kvmem_transfer) other = create(&peers, peers.remote_host, reads);
    RUN(held);
    RUN(other);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(held, NULL, ERR));
    AWAIT(SIM(sim_calls("cuLaunchKernel")) + SIM(sim_calls("cuMemcpyAsync")) > 0);
    SIM(sim_advance(finished));
    for (int i = 0; i < 3; i++) {
        RUN(other);
        CLEANUP(message_free) message metadata = agent_metadata(peers.far);
    }
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "its GPU has finished no copy for 1000 ms", kvmem_transfer_wait(held, PATIENCE, ERR));
    RUN(other);
    SIM(sim_go());
    RUN(held);
}

TEST_CALL(a_gpu_that_does_not_gather, hold_owner(true, 0))
TEST_CALL(a_gpu_that_does_not_scatter, hold_owner(false, 0))
TEST_CALL(a_gpu_that_does_not_read_back_what_it_has_scattered, hold_owner(false, 1))
