// SPDX-License-Identifier: Apache-2.0
// More notifications than an agent keeps, with the stand-in for NIXL: those that were kept are returned in
// order, and then the loss is reported, once.
#include "completions.h"
#include "stand_in.h"

#include <string.h>

#define MAX_MESSAGES 65536
#define MAX_MIB 64
#define LARGE (MIB - strlen("far")) /* the name of the sender counts */

static kvmem_agent *open_agent(void) {
    nixl_find_stand_in();
    GET(kvmem_agent *, agent, kvmem_agent_create, "near", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    return agent;
}

/* Messages with these numbers wait, and no others before them. */
static void expect_messages(kvmem_agent *agent, uint64_t timeout, uint64_t first, size_t count) {
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, agent, timeout);
    CHECK_EQ(taken->count, count);
    for (size_t i = 0; i < count; i++) {
        const kvmem_notification message = taken->items[i];
        CHECK_STR(message.agent, "far");
        CHECK_BYTES(message.data, REF((uint64_t){first + i}), sizeof(uint64_t));
    }
}

TEST(the_loss_follows_the_messages_that_were_kept) {
    OWNED(kvmem_agent) agent = open_agent();
    NIXL(nixl_sim_deliver(0, MAX_MESSAGES + 5, sizeof(uint64_t)));
    expect_messages(agent, PATIENCE, 0, MAX_MESSAGES);
    NIXL(nixl_sim_deliver(MAX_MESSAGES + 5, 2, sizeof(uint64_t)));
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "agent 'near' has lost 5 notifications here",
           kvmem_agent_take_notifications,
           agent, 0);
    expect_messages(agent, 0, MAX_MESSAGES + 5, 2);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "in time", kvmem_agent_take_notifications, agent, 0);
}

TEST(a_queue_reports_the_messages_and_then_the_loss) {
    OWNED(kvmem_agent) agent = open_agent();
    OWN(kvmem_queue, queue, kvmem_queue_create);
    EXPECT_OK(kvmem_agent_report_notifications(agent, queue, 5, ERR));
    NIXL(nixl_sim_deliver(0, MAX_MIB + 6, LARGE));
    CHECK_EQ(next_completion(queue).user_data, 5);
    NIXL(nixl_sim_deliver(MAX_MIB + 6, 1, sizeof(uint64_t))); /* too late: the inbox is full */
    const uint64_t polls = NIXL(nixl_sim_notification_polls());
    while (NIXL(nixl_sim_notification_polls()) < polls + 2) sched_yield();
    expect_messages(agent, 0, 0, MAX_MIB);
    CHECK_EQ(next_completion(queue).user_data, 5);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "has lost 7 notifications", kvmem_agent_take_notifications, agent, 0);
    NIXL(nixl_sim_deliver(MAX_MIB + 7, 1, sizeof(uint64_t)));
    CHECK_EQ(next_completion(queue).user_data, 5);
    expect_messages(agent, 0, MAX_MIB + 7, 1);
}

TEST(messages_arrive_though_another_backend_fails) {
    OWNED(kvmem_agent) agent = open_agent();
    NIXL(nixl_sim_set_notifications_fail(1));
    NIXL(nixl_sim_deliver(0, 3, sizeof(uint64_t)));
    expect_messages(agent, PATIENCE, 0, 3);
    REFUSE(KVMEM_STATUS_NIXL, "get the notifications of agent 'near'", kvmem_agent_take_notifications, agent,
           0);
    NIXL(nixl_sim_set_notifications_fail(0));
}

/* NIXL finds a sender by counting from the first one. */
TEST(senders_that_are_known_are_not_counted) {
    enum { NUM_SENDERS = 4000, MAX_UNKNOWN = 4096 };
    OWNED(kvmem_agent) agent = open_agent();
    uint64_t steps = 0;
    for (int round = 0; round < 2; round++) {
        NIXL(nixl_sim_deliver_from_each(0, NUM_SENDERS));
        OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, agent, PATIENCE);
        CHECK_EQ(taken->count, NUM_SENDERS);
        if (round == 0) steps = NIXL(nixl_sim_steps());
    }
    CHECK_EQ(NIXL(nixl_sim_steps()), steps);
    NIXL(nixl_sim_deliver_from_each(NUM_SENDERS, MAX_UNKNOWN + 7));
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, agent, PATIENCE);
    CHECK_EQ(taken->count, MAX_UNKNOWN);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "has lost 7 notifications", kvmem_agent_take_notifications, agent, 0);
}
