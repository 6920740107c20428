// SPDX-License-Identifier: Apache-2.0
// Starts peers with posix_spawn over a socket pair, keeps a list of the live ones, and frames their messages.
#include "peer.h"

#include "harness.h"

#include <spawn.h>

#define MAX_PEERS 8
#define MAX_FRAME (UINT64_C(1) << 30)

extern char **environ;

/* The live peers, so that none is left after a failed case. */
static struct {
    peer peer;
    const char *common_role; /* NULL: started by one case */
} living[MAX_PEERS];

typedef struct frame_header {
    uint64_t size;
    uint32_t tag;
    uint32_t zero;
} frame_header;

void message_free(const message *message) { free(message->data); }

static void remember(peer started) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (living[i].peer.pid == 0) {
            living[i].peer = started;
            living[i].common_role = NULL;
            return;
        }
    }
    FAIL("more than %d peers", MAX_PEERS);
}

static void forget(peer *ended) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (living[i].peer.pid == ended->pid) living[i].peer.pid = 0;
    }
    close(ended->socket);
    ended->pid = 0;
    ended->socket = -1;
}

peer peer_start(const char *role) {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    posix_spawn_file_actions_t actions;
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], PEER_SOCKET), 0);
    char role_name[64];
    CHECK(strlen(role) < sizeof(role_name));
    strcpy(role_name, role);
    char binary[] = "/proc/self/exe";
    char argument[] = PEER_ARGUMENT;
    char *arguments[] = {binary, argument, role_name, NULL};
    peer started = {0, ends[0]};
    CHECK_EQ(posix_spawn(&started.pid, binary, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    remember(started);
    return started;
}

peer peer_start_with(const char *role, const char *variable, const char *value) {
    const char *own = getenv(variable);
    CLEANUP(test_free) char *kept = own != NULL ? strdup(own) : NULL;
    CHECK_EQ(setenv(variable, value, 1), 0);
    const peer started = peer_start(role);
    CHECK_EQ(kept != NULL ? setenv(variable, kept, 1) : unsetenv(variable), 0);
    return started;
}

peer peer_shared(const char *role) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        const char *known = living[i].common_role;
        if (living[i].peer.pid != 0 && known != NULL && strcmp(known, role) == 0) return living[i].peer;
    }
    const peer started = peer_start(role);
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (living[i].peer.pid == started.pid) living[i].common_role = role;
    }
    return started;
}

static int reap(pid_t pid) {
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    return state;
}

void peer_finish(peer *peer) {
    if (peer->pid == 0) return;
    shutdown(peer->socket, SHUT_WR);
    const int state = reap(peer->pid);
    forget(peer);
    if (WIFSIGNALED(state)) fprintf(stderr, "the process was ended by signal %d\n", WTERMSIG(state));
    CHECK(WIFEXITED(state));
    CHECK_EQ(WEXITSTATUS(state), 0);
}

void peer_kill(peer *peer) {
    kill(peer->pid, SIGKILL);
    reap(peer->pid);
    forget(peer);
}

void peer_await_kill(peer *peer) {
    const int state = reap(peer->pid);
    forget(peer);
    CHECK(WIFSIGNALED(state));
    CHECK_EQ(WTERMSIG(state), SIGKILL);
}

void peer_freeze(const peer *peer) {
    CHECK_EQ(kill(peer->pid, SIGSTOP), 0);
    int state = 0;
    CHECK_EQ(waitpid(peer->pid, &state, WUNTRACED), peer->pid);
    CHECK(WIFSTOPPED(state));
}

void peer_thaw(const peer *peer) { CHECK_EQ(kill(peer->pid, SIGCONT), 0); }

void peer_finish_shared(void) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (living[i].peer.pid != 0 && living[i].common_role != NULL) {
            CLEANUP(peer_finish) peer common = living[i].peer;
        }
    }
}

void peer_reap_all(bool with_common) {
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (living[i].peer.pid != 0 && (with_common || living[i].common_role == NULL)) {
            CLEANUP(peer_kill) peer left = living[i].peer;
        }
    }
}

static void send_all(int socket, const void *data, size_t size) {
    const char *bytes = data;
    while (size > 0) {
        const ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        CHECK(sent > 0);
        bytes += sent;
        size -= (size_t)sent;
    }
}

static void receive_all(int socket, void *data, size_t size) {
    char *bytes = data;
    while (size > 0) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        const int count = poll(&ready, 1, -1);
        if (count < 0 && errno == EINTR) continue;
        CHECK_EQ(count, 1);
        const ssize_t received = recv(socket, bytes, size, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) FAIL("the other process has ended");
        bytes += received;
        size -= (size_t)received;
    }
}

void frame_send(int socket, uint32_t tag, const void *data, size_t size) {
    const frame_header header = {.size = size, .tag = tag};
    send_all(socket, &header, sizeof(header));
    send_all(socket, data, size);
}

bool frame_arrives(int socket) {
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    char byte;
    return poll(&ready, 1, -1) == 1 && recv(socket, &byte, 1, MSG_PEEK) == 1;
}

message frame_receive(int socket, uint32_t *tag) {
    frame_header header;
    receive_all(socket, &header, sizeof(header));
    CHECK(header.size <= MAX_FRAME);
    message received = {test_allocate(header.size), header.size};
    receive_all(socket, received.data, received.size);
    *tag = header.tag;
    return received;
}

void frames_serve(int socket, void (*serve)(int socket, uint32_t tag, const message *request)) {
    while (frame_arrives(socket)) {
        uint32_t tag = 0;
        CLEANUP(message_free) message request = frame_receive(socket, &tag);
        serve(socket, tag, &request);
    }
}

message frame_expect(int socket, uint32_t tag) {
    uint32_t got = 0;
    message received = frame_receive(socket, &got);
    CHECK_EQ(got, tag);
    return received;
}

void frame_await(int socket, uint32_t tag) {
    CLEANUP(message_free) const message received = frame_expect(socket, tag);
}

bool frame_next_into(int socket, uint32_t *tag, void *data, size_t size) {
    if (!frame_arrives(socket)) return false;
    CLEANUP(message_free) const message received = frame_receive(socket, tag);
    CHECK_EQ(received.size, size);
    memcpy(data, received.data, size);
    return true;
}

void frame_expect_into(int socket, uint32_t tag, void *data, size_t size) {
    uint32_t got = 0;
    if (!frame_next_into(socket, &got, data, size)) FAIL("the other process has ended");
    CHECK_EQ(got, tag);
}
