// SPDX-License-Identifier: Apache-2.0
// The walk finds a fault of each kind: a service of the test that keeps files, memory or a thread of a client that misbehaves, that
// serves one client after the other, or that a client makes slow or busy.
#include "hostile.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Bounds that no run reaches. */
#define MANY 1000
#define LONG 1000000

TEST_CALL(memory_that_a_client_announces_is_found, hostile_finds("announces much", "bytes, usually"))
TEST_CALL(files_of_clients_that_say_nothing_are_found, hostile_finds("says nothing", "files, usually"))
TEST_CALL(files_that_are_kept_for_ever_are_found, hostile_finds("leaves", "resources are left"))
TEST_CALL(a_client_that_others_wait_for_is_found, hostile_finds("stops in the middle", "the healthy peer waits"))
TEST_CALL(a_message_that_ends_the_victim_is_found, hostile_finds("sends a bad message", "the victim ended"))
TEST_CALL(a_wrong_reply_is_found, hostile_finds("spoils replies", "the healthy peer failed"))
TEST_CALL(a_client_that_holds_up_others_is_found,
          hostile_finds_beyond("holds up", (hostile_bounds){.longest_ms = 100, .processors = MANY}, "the healthy peer waited"))
TEST_CALL(a_client_that_slows_others_down_is_found,
          hostile_finds_beyond("slows down", (hostile_bounds){.longest_ms = LONG, .share = 0.5, .processors = MANY}, "rounds per second"))
TEST_CALL(a_client_that_keeps_the_victim_busy_is_found,
          hostile_finds_beyond("keeps busy", (hostile_bounds){.longest_ms = LONG}, "the victim needed"))
TEST_CALL(a_behaviour_that_does_no_harm_passes, hostile_finds("asks as others do", NULL))

/* A request has one byte, and so has its reply. */
enum { ASK = 1, SILENT, MUCH, KEPT, SLOW, BAD, SPOIL, HOLD, SLOW_DOWN, BUSY, REPLY };

static atomic_bool ends, spoils, is_slow;
static int listener;
static pthread_t thread;

static uint64_t own_processor_time(void) {
    struct timespec time;
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return SECONDS(time.tv_sec) + (uint64_t)time.tv_nsec;
}

/* For more than a few of the kernel's clock ticks. */
static void use_the_processor(void) {
    const uint64_t end = own_processor_time() + MILLISECONDS(50);
    while (own_processor_time() < end) {
    }
}

/* The faults are those of this function. */
static void serve_one(int client) {
    unsigned char request = 0;
    if (poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 5) != 1) return; /* kept open */
    if (recv(client, &request, 1, 0) != 1) request = 0;
    if (request == SILENT || request == KEPT) return;
    if (request == MUCH) memset(malloc(MIB), 1, MIB);
    if (request == SLOW) (void)recv(client, &request, 1, 0);
    if (request == BAD) abort();
    if (request == HOLD) (void)poll(NULL, 0, 1500);
    if (request == SLOW_DOWN) is_slow = true;
    if (request == ASK && is_slow) (void)poll(NULL, 0, 300);
    if (request == BUSY) use_the_processor();
    if (request == SPOIL) spoils = true;
    (void)!send(client, REF((unsigned char){spoils ? 0 : REPLY}), 1, MSG_NOSIGNAL);
    close(client);
}

static void *serve_all(void *nothing) {
    while (!ends) {
        if (poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 5) != 1) continue;
        const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0) serve_one(client);
    }
    return nothing;
}

static struct sockaddr_un address(void) {
    struct sockaddr_un made = {.sun_family = AF_UNIX};
    snprintf(made.sun_path, sizeof(made.sun_path), "%.100s", hostile_path("service"));
    return made;
}

static void open_service(void) {
    const struct sockaddr_un own = address();
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(listener, (const struct sockaddr *)&own, sizeof(own)), 0);
    CHECK_EQ(listen(listener, 64), 0);
    CHECK_EQ(pthread_create(&thread, NULL, serve_all, NULL), 0);
    hostile_put("listens", "", 0);
}

static void close_service(void) {
    ends = true;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close(listener);
}

static void await_service(void) {
    CLEANUP(message_free) const message listens = hostile_take("listens");
}

static int ask(unsigned char request) {
    const struct sockaddr_un service = address();
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(client, (const struct sockaddr *)&service, sizeof(service)), 0);
    CHECK_EQ(send(client, &request, 1, MSG_NOSIGNAL), 1);
    return client;
}

static void ask_and_read(void) {
    CLEANUP(test_close) const int client = ask(ASK);
    unsigned char reply = 0;
    CHECK_EQ(recv(client, &reply, 1, 0), 1);
    CHECK_EQ(reply, REPLY);
}

static void leave_open(unsigned char request) { (void)ask(request); }

static void announce_much(unsigned turn) { (void)turn, leave_open(MUCH); }
static void say_nothing(unsigned turn) { (void)turn, leave_open(SILENT); }
/* Fewer than the limit of files. */
static void leave(unsigned turn) {
    if (turn < 4) close(ask(KEPT));
}
static void stop_in_the_middle(unsigned turn) {
    if (turn == 1) leave_open(SLOW);
}
static void send_a_bad_message(unsigned turn) { (void)turn, leave_open(BAD); }
static void spoil_replies(unsigned turn) { (void)turn, leave_open(SPOIL); }
static void hold_up(unsigned turn) {
    if (turn < 2) leave_open(HOLD);
}
static void slow_down(unsigned turn) {
    if (turn < 2) leave_open(SLOW_DOWN);
}
static void keep_busy(unsigned turn) {
    CLEANUP(test_close) const int client = ask(turn < 2 ? BUSY : ASK);
    CHECK_EQ(recv(client, REF((unsigned char){0}), 1, 0), 1);
}
static void ask_as_others_do(unsigned turn) { (void)turn, ask_and_read(); }

static const hostile_row rows[] = {
    {.does = "announces much", .act = announce_much, .turns = 40},
    {.does = "says nothing", .act = say_nothing, .turns = 40},
    {.does = "leaves", .act = leave},
    {.does = "stops in the middle", .act = stop_in_the_middle, .stops = true},
    {.does = "sends a bad message", .act = send_a_bad_message},
    {.does = "spoils replies", .act = spoil_replies},
    {.does = "holds up", .act = hold_up},
    {.does = "slows down", .act = slow_down},
    {.does = "keeps busy", .act = keep_busy},
    {.does = "asks as others do", .act = ask_as_others_do},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_service, .close = close_service},
    .healthy = {.open = await_service, .round = ask_and_read},
    .open_hostile = await_service,
    .files = 8,
    .threads = 1,
    .bytes = 16 * MIB,
    .rows = rows,
    .num_rows = NUM(rows),
};
