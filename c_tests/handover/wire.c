// SPDX-License-Identifier: Apache-2.0
// Reads messages from a socket, changes them, and sends them.
#include "wire.h"

#include <sys/un.h>

#define MAX_BYTES (WIRE_HEADER + 32768)

typedef union control {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(WIRE_MAX_FDS * sizeof(int))];
} control;

static void take_fds(struct msghdr *header, wire *message) {
    const struct cmsghdr *rights = CMSG_FIRSTHDR(header);
    if (rights == NULL) return;
    CHECK_EQ(rights->cmsg_type, SCM_RIGHTS);
    message->num_fds = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(message->fds, CMSG_DATA(rights), message->num_fds * sizeof(int));
}

static bool keeps_messages_apart(int socket) {
    int type = 0;
    socklen_t size = sizeof(type);
    CHECK_EQ(getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size), 0);
    return type == SOCK_SEQPACKET;
}

wire wire_receive(int socket) {
    wire message = {.bytes = test_allocate(MAX_BYTES)};
    control control;
    struct iovec part = {message.bytes, keeps_messages_apart(socket) ? MAX_BYTES : WIRE_HEADER};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    const ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    CHECK(size >= WIRE_HEADER);
    take_fds(&header, &message);
    message.size = WIRE_HEADER + wire_get(message.bytes + WIRE_BYTES);
    CHECK(message.size <= MAX_BYTES);
    CHECK_EQ(message.num_fds, wire_get(message.bytes + WIRE_FDS));
    const size_t left = message.size - (size_t)size;
    CHECK(left == 0 || recv(socket, message.bytes + size, left, MSG_WAITALL) == (ssize_t)left);
    return message;
}

size_t wire_capture_all(const kvmem_share *share, wire *messages, size_t most) {
    OPENED(socket_pair, ends, SOCK_SEQPACKET);
    EXPECT_OK(kvmem_share_send(share, ends.fds[0], PATIENCE, ERR));
    size_t count = 0;
    size_t bytes = 0;
    size_t fds = 0;
    do {
        CHECK(count < most);
        messages[count] = wire_receive(ends.fds[1]);
        bytes += messages[count].size - WIRE_HEADER;
        fds += messages[count].num_fds;
        count++;
    } while (bytes < wire_get(messages[0].bytes + WIRE_TOTAL_BYTES) ||
             fds < wire_get(messages[0].bytes + WIRE_TOTAL_FDS));
    return count;
}

wire wire_capture(const kvmem_share *share) {
    wire message;
    CHECK_EQ(wire_capture_all(share, &message, 1), 1);
    return message;
}

wire wire_copy(const wire *message) {
    wire copy = *message;
    copy.bytes = test_allocate(MAX_BYTES);
    memcpy(copy.bytes, message->bytes, message->size);
    return copy;
}

void wire_free_copy(wire *message) { free(message->bytes); }

void wire_close(wire *message) {
    for (size_t i = 0; i < message->num_fds; i++) close(message->fds[i]);
    free(message->bytes);
}

void wire_put(unsigned char *field, uint32_t value, size_t size) {
    for (size_t i = 0; i < size; i++) field[i] = (unsigned char)(value >> (8 * i));
}

uint32_t wire_get(const unsigned char *field) {
    return field[0] | (uint32_t)field[1] << 8 | (uint32_t)field[2] << 16 | (uint32_t)field[3] << 24;
}

void wire_seal(wire *message) {
    const uint32_t body = crc_append(0, message->bytes + WIRE_HEADER, message->size - WIRE_HEADER);
    wire_put(message->bytes + WIRE_BODY_CHECKSUM, body, 4);
    wire_put(message->bytes + WIRE_CHECKSUM, crc_append(0, message->bytes, WIRE_CHECKSUM), 4);
}

bool wire_try_send(int socket, const wire *message, size_t size, size_t num_fds) {
    control control = {.bytes = {0}};
    struct iovec part = {message->bytes, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (num_fds > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        control.aligned.cmsg_level = SOL_SOCKET;
        control.aligned.cmsg_type = SCM_RIGHTS;
        control.aligned.cmsg_len = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.aligned), message->fds, num_fds * sizeof(int));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL) == (ssize_t)size;
}

void wire_send(int socket, const wire *message, size_t size, size_t num_fds) {
    CHECK(wire_try_send(socket, message, size, num_fds));
}

static int socket_for(const char *path, int type, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    CHECK(strlen(path) < sizeof(address->sun_path));
    strcpy(address->sun_path, path);
    const int made = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK(made >= 0);
    return made;
}

int bind_raw(const char *path, int type) {
    struct sockaddr_un address;
    const int bound = socket_for(path, type, &address);
    CHECK_EQ(bind(bound, (struct sockaddr *)&address, sizeof(address)), 0);
    return bound;
}

int listen_raw(const char *path) {
    const int listener = bind_raw(path, SOCK_STREAM);
    CHECK_EQ(listen(listener, 4), 0);
    return listener;
}

int connect_raw(const char *path) {
    struct sockaddr_un address;
    const int connected = socket_for(path, SOCK_STREAM, &address);
    CHECK_EQ(connect(connected, (struct sockaddr *)&address, sizeof(address)), 0);
    return connected;
}

int try_connect_raw(const char *path) {
    struct sockaddr_un address;
    const int connected = socket_for(path, SOCK_STREAM | SOCK_NONBLOCK, &address);
    if (connect(connected, (struct sockaddr *)&address, sizeof(address)) == 0) return connected;
    close(connected);
    return -1;
}

void write_request(unsigned char *request, const char *name, const kvmem_token *token) {
    wire message = {.bytes = request, .size = WIRE_HEADER + 33 + strlen(name)};
    const uint32_t size = (uint32_t)(33 + strlen(name));
    unsigned char *body = request + WIRE_HEADER;
    memset(request, 0, WIRE_HEADER);
    memcpy(body, token->bytes, 32);
    body[32] = 2;
    memcpy(body + 33, name, strlen(name));
    memcpy(request, "KVMEMMSG", 8);
    wire_put(request + WIRE_VERSION, 1, 2);
    wire_put(request + WIRE_KIND, 2, 2);
    wire_put(request + WIRE_TOTAL_BYTES, size, 4);
    wire_put(request + WIRE_BYTES, size, 4);
    wire_seal(&message);
}

int ask_raw(const char *path, const char *name, const kvmem_token *token, size_t size) {
    unsigned char request[256];
    const size_t whole = WIRE_HEADER + 33 + strlen(name);
    CHECK(whole <= sizeof(request));
    write_request(request, name, token);
    const int client = connect_raw(path);
    const size_t sent = size == WHOLE_REQUEST ? whole : size;
    CHECK_EQ(send(client, request, sent, MSG_NOSIGNAL), sent);
    return client;
}
