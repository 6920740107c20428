// SPDX-License-Identifier: Apache-2.0
// Memory views that succeed, with the stand-in for NIXL: UCX needs a GPU for them. A view is released once,
// and before its agent.
#include "harness.h"
#include "stand_in.h"

static unsigned char memory[4096];

static kvmem_agent *open_agent(void) {
    nixl_find_stand_in();
    GET(kvmem_agent *, agent, kvmem_agent_create, "near", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    return agent;
}

static void expect_views(uint64_t alive, uint64_t released) {
    const nixl_sim_views views = NIXL(nixl_sim_get_views());
    CHECK_EQ(views.alive, alive);
    CHECK_EQ(views.released, released);
    CHECK_EQ(views.alive_at_end, 0);
}

/* Of the memory of the agent and of a peer; each has a handle of its own. */
TEST(views_have_handles_and_are_released_once) {
    OWNED(kvmem_agent) agent = open_agent();
    OWNED(kvmem_agent) far = MADE(kvmem_agent, kvmem_agent_create, "far", NULL);
    EXPECT_OK(kvmem_agent_create_backend(far, "UCX", NULL, 0, ERR));
    agents_introduce(agent, far);
    const kvmem_nixl_descriptor own = memory_at(memory, sizeof(memory));
    const kvmem_nixl_descriptor of_far = WITH(own, it.agent = "far");
    OWN(kvmem_segments, segments, kvmem_segments_register, agent, &own, 1, NULL);
    void *here = NULL, *there = NULL;
    GET(kvmem_memory_view *, local, kvmem_memory_view_create, agent, &own, 1, NULL, &here);
    GET(kvmem_memory_view *, remote, kvmem_memory_view_create, agent, &of_far, 1, NULL, &there);
    expect_views(2, 0);
    CHECK(here != NULL && there != NULL && here != there);
    kvmem_memory_view_destroy(local);
    expect_views(1, 1);
    kvmem_memory_view_destroy(remote);
    expect_views(0, 2);
}

/* The view keeps the agent. */
TEST(a_view_is_released_before_its_agent) {
    kvmem_agent *agent = open_agent();
    const kvmem_nixl_descriptor own = memory_at(memory, sizeof(memory));
    kvmem_segments *segments = MADE(kvmem_segments, kvmem_segments_register, agent, &own, 1, NULL);
    void *handle = NULL;
    GET(kvmem_memory_view *, view, kvmem_memory_view_create, agent, &own, 1, NULL, &handle);
    const uint64_t released = NIXL(nixl_sim_get_views()).released;
    kvmem_segments_destroy(segments);
    kvmem_agent_destroy(agent);
    CHECK(handle != NULL);
    expect_views(1, released);
    kvmem_memory_view_destroy(view);
    expect_views(0, released + 1);
}
