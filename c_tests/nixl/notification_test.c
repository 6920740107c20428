// SPDX-License-Identifier: Apache-2.0
// Notifications between processes: any bytes, empty ones, many, large ones, and a wait that ends.
#include "harness.h"

#include <pthread.h>

KV_PEER_ROLE

static void meet(kv_peer *peer, kvmem_agent *agent) {
    kv_peer_open(peer, "listener", REF(kv_config(&kv_kinds[0])), 1);
    kv_peer_meet(peer, agent);
}

TEST(any_bytes_arrive_unchanged) {
    static const unsigned char binary[] = {0x00, 0xFF, 0xFE, 0x80, 0x00, 'a', 0xC3, 0x28, 0x00};
    OWNED(kvmem_agent) agent = agent_open("speaker");
    CLEANUP(kv_peer_close) kv_peer peer;
    meet(&peer, agent);
    EXPECT_OK(kvmem_agent_notify(agent, "listener", binary, sizeof(binary), ERR));
    kv_peer_expect_notification(&peer, "speaker", binary, sizeof(binary));
    kv_peer_notify(&peer, "speaker", binary, sizeof(binary));
    agent_expect_notification(agent, "listener", binary, sizeof(binary));
}

TEST(an_empty_notification_arrives) {
    OWNED(kvmem_agent) agent = agent_open("speaker");
    CLEANUP(kv_peer_close) kv_peer peer;
    meet(&peer, agent);
    EXPECT_OK(kvmem_agent_notify(agent, "listener", NULL, 0, ERR));
    kv_peer_expect_notification(&peer, "speaker", "", 0);
    kv_peer_notify(&peer, "speaker", NULL, 0);
    agent_expect_notification(agent, "listener", "", 0);
}

TEST(a_large_notification_arrives) {
    const size_t size = MIB;
    CLEANUP(test_free) unsigned char *large = test_allocate(size);
    kv_fill(large, size, 99);
    OWNED(kvmem_agent) agent = agent_open("speaker");
    CLEANUP(kv_peer_close) kv_peer peer;
    meet(&peer, agent);
    EXPECT_OK(kvmem_agent_notify(agent, "listener", large, size, ERR));
    kv_peer_expect_notification(&peer, "speaker", large, size);
}

#define MANY 500

/* None is lost, however many a call returns. */
TEST(many_all_arrive) {
    OWNED(kvmem_agent) agent = agent_open("speaker");
    OWNED(kvmem_agent) other = agent_open("other");
    agents_introduce(agent, other);
    for (uint32_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_agent_notify(agent, "other", &i, sizeof(i), ERR));
    unsigned char seen[MANY] = {0};
    for (size_t taken = 0; taken < MANY;) {
        OWN(kvmem_notifications, batch, kvmem_agent_take_notifications, other, PATIENCE);
        CHECK(batch->count > 0);
        for (size_t i = 0; i < batch->count; i++, taken++) {
            const kvmem_notification notification = batch->items[i];
            uint32_t number = MANY;
            CHECK_EQ(notification.size, sizeof(number));
            memcpy(&number, notification.data, sizeof(number));
            CHECK(number < MANY);
            CHECK_EQ(seen[number]++, 0);
        }
    }
}

/* NIXL fails with its own error, also if the peer has ended. Imported layouts identify the process of the
   peer. */
TEST(a_peer_that_has_ended_is_lost) {
    OWNED(kvmem_agent) agent = agent_open("speaker");
    kv_peer peer;
    meet(&peer, agent);
    kv_peer_crash(&peer);
    kvmem_status status = KVMEM_STATUS_OK;
    while (status == KVMEM_STATUS_OK) { /* the connection may exist a little longer */
        status = kvmem_agent_notify(agent, "listener", "x", 1, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_PEER_LOST);
    CHECK_HAS(test_last_message(), "agent 'listener' is lost");
}

TEST(a_notification_to_the_agent_itself_fails) {
    OWNED(kvmem_agent) agent = agent_open("alice");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "'alice' is the agent itself",
                   kvmem_agent_notify(agent, "alice", "x", 1, ERR));
}

TEST(waiting_for_none_times_out) {
    OWNED(kvmem_agent) agent = agent_open("lonely");
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, agent, 0);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, agent, MILLISECONDS(20));
}

static void count_notes(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target;
    if (strstr(message, "notification") != NULL) ++*(atomic_int *)user_data;
}

/* Its backend cannot carry notifications, so none arrives, which is not an error. */
TEST(an_agent_with_files_alone_receives_none) {
    static atomic_int notes;
    kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_NO_PROGRESS_THREAD,
                                          it.progress_delay_ns = 100000);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, count_notes, &notes, ERR));
    GET(kvmem_agent *, agent, kvmem_agent_create, "files", &options);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "no backend", kvmem_agent_take_notifications, agent, 0);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    REFUSE(KVMEM_STATUS_TIMED_OUT, "POSIX", kvmem_agent_take_notifications, agent, 0);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "", kvmem_agent_take_notifications, agent, MILLISECONDS(20));
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    kvmem_agent *speaker = agent_open("speaker");
    agents_introduce(speaker, agent);
    EXPECT_OK(kvmem_agent_notify(speaker, "files", "hello", 5, ERR));
    agent_expect_notification(agent, "speaker", "hello", 5);
    kvmem_agent_destroy(agent);
    kvmem_agent_destroy(speaker);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_EQ(notes, 0);
}

TEST(unknown_agents_cannot_be_notified) {
    OWNED(kvmem_agent) agent = agent_open("speaker");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "stranger", kvmem_agent_notify(agent, "stranger", "x", 1, ERR));
}

TEST(the_list_is_checked_and_outlives_the_agent) {
    kvmem_agent *agent = agent_open("speaker");
    kvmem_agent *other = agent_open("other");
    agents_introduce(agent, other);
    EXPECT_OK(kvmem_agent_notify(agent, "other", "still here", 10, ERR));
    GET(kvmem_notifications *, taken, kvmem_agent_take_notifications, other, PATIENCE);
    kvmem_agent_destroy(agent);
    kvmem_agent_destroy(other);
    CHECK_EQ(taken->count, 1);
    const kvmem_notification notification = taken->items[0];
    CHECK_STR(notification.agent, "speaker");
    CHECK_BYTES(notification.data, "still here", 10);
    kvmem_notifications_destroy(taken);
    kvmem_notifications_destroy(NULL);
}

/* A completion without a failure, for the arrival of messages. */
static void expect_report(kvmem_queue *queue, uint64_t user_data) {
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.user_data, user_data);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, 0);
}

/* No thread waits for messages: the queue reports them, and then they are read in order without waiting. */
TEST(a_queue_reports_that_messages_have_arrived) {
    OWNED(kvmem_agent) agent = agent_open("speaker");
    OWN(kvmem_queue, queue, kvmem_queue_create);
    CLEANUP(kv_peer_close) kv_peer peer;
    meet(&peer, agent);
    EXPECT_OK(kvmem_agent_report_notifications(agent, queue, 5, ERR));
    unsigned char expected = 0;
    for (unsigned char round = 0; round < 20; round++) {
        for (unsigned char i = 0; i < 3; i++) {
            const unsigned char number = 3 * round + i;
            kv_peer_notify(&peer, "speaker", &number, 1);
        }
        while (expected < 3 * (round + 1)) {
            expect_report(queue, 5);
            OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, agent, 0);
            for (size_t k = 0; k < taken->count; k++, expected++) {
                const kvmem_notification message = taken->items[k];
                CHECK_EQ(message.size, 1);
                CHECK_EQ(*(const unsigned char *)message.data, expected);
            }
        }
    }
    OWN(kvmem_queue, other, kvmem_queue_create);
    EXPECT_OK(kvmem_agent_report_notifications(agent, other, 6, ERR)); /* replaces the earlier report */
    kv_peer_notify(&peer, "speaker", "x", 1);
    expect_report(other, 6);
    EXPECT_OK(kvmem_agent_report_notifications(agent, NULL, 0, ERR));
    agent_expect_notification(agent, "listener", "x", 1);
    kv_peer_notify(&peer, "speaker", "y", 1);
    agent_expect_notification(agent, "listener", "y", 1); /* a thread that waits gets them as before */
    kvmem_completion none;
    GET(size_t, count, kvmem_queue_wait, other, 0, &none, 1);
    CHECK_EQ(count, 0);
}

/* ---- the order of the messages of each sender ---- */

#define SENDERS 2
#define NUMBERS 600
#define SMALL 64
#define LARGE 20000

/* An agent that sends numbers, each alone or with a transfer to the receiver. */
typedef struct sender {
    const char *name;
    kvmem_agent *agent;
    kvmem_request *write;
    unsigned char memory[SMALL];
    kvmem_status status; /* the first failure; read after the thread was joined */
} sender;

static unsigned char received[SMALL];

/* Each operation ends before the next one begins. */
static void *send_numbers(void *argument) {
    sender *sender = argument;
    CLEANUP(test_free) unsigned char *message = test_allocate(LARGE);
    memset(message, 0, LARGE);
    for (uint32_t number = 0; number < NUMBERS && sender->status == KVMEM_STATUS_OK; number++) {
        const size_t size = number % 7 == 0 ? LARGE : sizeof(number);
        memcpy(message, &number, sizeof(number));
        if (number % 3 == 0) {
            sender->status = kvmem_request_post(sender->write, message, size, ERR);
            THEN(sender->status, kvmem_request_wait(sender->write, PATIENCE, ERR));
        } else {
            sender->status = kvmem_agent_notify(sender->agent, "receiver", message, size, ERR);
        }
    }
    test_forget_error();
    return NULL;
}

static void receive_number(const kvmem_notification *message, uint32_t expected[SENDERS]) {
    const size_t from = (size_t)(message->agent[strlen("sender")] - '0');
    uint32_t number = NUMBERS;
    CHECK(from < SENDERS && message->size >= sizeof(number));
    memcpy(&number, message->data, sizeof(number));
    CHECK_EQ(number, expected[from]++);
}

/* Messages alone and with transfers, small and large: those of each sender are in its order. */
TEST(messages_of_each_sender_are_in_order) {
    OWNED(kvmem_agent) receiver = agent_open("receiver");
    const kvmem_nixl_descriptor there = memory_at(received, SMALL);
    OWN(kvmem_segments, target, kvmem_segments_register, receiver, &there, 1, NULL);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    EXPECT_OK(kvmem_agent_report_notifications(receiver, queue, 5, ERR));
    static sender senders[SENDERS];
    kvmem_segments *sources[SENDERS];
    for (size_t i = 0; i < SENDERS; i++) {
        senders[i].name = TEXT("sender%zu", i);
        senders[i].agent = agent_open(senders[i].name);
        const kvmem_nixl_descriptor here = memory_at(senders[i].memory, SMALL);
        sources[i] = MADE(kvmem_segments, kvmem_segments_register, senders[i].agent, &here, 1, NULL);
        agents_introduce(senders[i].agent, receiver);
        senders[i].write = MADE(kvmem_request, kvmem_request_create, senders[i].agent, KVMEM_REQUEST_WRITE,
                                &here, "receiver", &there, 1, NULL);
    }
    pthread_t threads[SENDERS];
    for (size_t i = 0; i < SENDERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, send_numbers, &senders[i]), 0);
    uint32_t expected[SENDERS] = {0};
    while (expected[0] < NUMBERS || expected[1] < NUMBERS) {
        expect_report(queue, 5);
        OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, receiver, 0);
        for (size_t i = 0; i < taken->count; i++) {
            const kvmem_notification message = taken->items[i];
            receive_number(&message, expected);
        }
    }
    for (size_t i = 0; i < SENDERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(senders[i].status, KVMEM_STATUS_OK);
        kvmem_request_destroy(senders[i].write);
        kvmem_segments_destroy(sources[i]);
        kvmem_agent_destroy(senders[i].agent);
    }
}

/* An agent is destroyed while a queue reports its messages. */
TEST(an_agent_with_a_queue_is_destroyed) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OWN(kvmem_agent, agent, kvmem_agent_create, "short", NULL);
    EXPECT_OK(kvmem_agent_report_notifications(agent, queue, 1, ERR));
}
