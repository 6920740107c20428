// SPDX-License-Identifier: Apache-2.0
// What goes over a socket, in the test's own hands: byte by byte as docs/share-transport.md has it.
#pragma once

#include "harness.h"

#define WIRE_HEADER 40
#define WIRE_MOST_FDS 253

/* Where the fields of a header are. */
enum {
    WIRE_VERSION = 8,
    WIRE_KIND = 10,
    WIRE_TOTAL_BYTES = 12,
    WIRE_TOTAL_FDS = 16,
    WIRE_NUMBER = 20,
    WIRE_BYTES = 24,
    WIRE_FDS = 28,
    WIRE_BODY_CHECKSUM = 32,
    WIRE_CHECKSUM = 36,
};

/* A message that holds a whole share, and what comes along. */
typedef struct wire {
    unsigned char *bytes;
    size_t size;
    int fds[WIRE_MOST_FDS];
    size_t num_fds;
} wire;

/* What kvmem_share_send sends of a share that is small. */
wire wire_capture(const kvmem_share *share);
/* The messages of a share that takes several, which must fit in a socket; answers how many. */
size_t wire_capture_all(const kvmem_share *share, wire *messages, size_t most);
/* The next message on a socket, with what comes along. */
wire wire_receive(int socket);
wire wire_copy(const wire *message); /* of the same file descriptors, which stay the original's */
void wire_free_copy(wire *message);
void wire_close(wire *message);

/* Gives a field of two or four bytes a value. */
void wire_put(unsigned char *field, uint32_t value, size_t size);
uint32_t wire_get(const unsigned char *field);
/* Makes the checksums right again. */
void wire_seal(wire *message);

/* Sends `size` bytes of it with the first `num_fds` file descriptors. */
void wire_send(int socket, const wire *message, size_t size, size_t num_fds);

/* A Unix socket of a type, SOCK_*, bound to a path. */
int bind_raw(const char *path, int type);
/* A broker's socket without the broker. */
int listen_raw(const char *path);
/* A connection of this process to a broker, and the request that a customer would send on it. */
int connect_raw(const char *path);
#define REQUEST_SIZE(name) (WIRE_HEADER + 33 + sizeof(name) - 1)
void write_request(unsigned char *request, const char *name, const kvmem_token *token);
/* A connection on which that many bytes of a request were sent; WHOLE_REQUEST for all. */
#define WHOLE_REQUEST SIZE_MAX
int ask_raw(const char *path, const char *name, const kvmem_token *token, size_t size);
