// SPDX-License-Identifier: Apache-2.0
// The messages of a share on a socket, as bytes. docs/share-transport.md defines the format.
#pragma once

#include "harness.h"

#define WIRE_HEADER 40
#define WIRE_MAX_FDS 253

/* The offsets of the fields of a header. */
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

/* A message that holds a whole share, and its file descriptors. */
typedef struct wire {
    unsigned char *bytes;
    size_t size;
    int fds[WIRE_MAX_FDS];
    size_t num_fds;
} wire;

/* The message that kvmem_share_send sends of a small share. */
wire wire_capture(const kvmem_share *share);
/* The messages of a share that needs several, all of which fit in a socket's buffer. Returns their number. */
size_t wire_capture_all(const kvmem_share *share, wire *messages, size_t most);
/* Receives the next message on a socket with its file descriptors. */
wire wire_receive(int socket);
wire wire_copy(const wire *message); /* with the same file descriptors, which the original owns */
void wire_free_copy(wire *message);
void wire_close(wire *message);

/* Sets a field of two or four bytes. */
void wire_put(unsigned char *field, uint32_t value, size_t size);
uint32_t wire_get(const unsigned char *field);
/* Computes the checksums. */
void wire_seal(wire *message);

/* Sends the first `size` bytes of a message with the first `num_fds` file descriptors. */
void wire_send(int socket, const wire *message, size_t size, size_t num_fds);
/* The same. Returns whether all of them were sent. */
bool wire_try_send(int socket, const wire *message, size_t size, size_t num_fds);

/* Creates a Unix socket of a type, SOCK_*, bound to a path. */
int bind_raw(const char *path, int type);
/* Listens at a path as a broker does. */
int listen_raw(const char *path);
/* Connects to a broker, and writes the request that a client would send. */
int connect_raw(const char *path);
/* The same without waiting, to a socket that does not block. Returns -1 if the queue of the listener is full, or none is there. */
int try_connect_raw(const char *path);
#define REQUEST_SIZE(name) (WIRE_HEADER + 33 + sizeof(name) - 1)
void write_request(unsigned char *request, const char *name, const kvmem_token *token);
/* Connects and sends `size` bytes of a request; WHOLE_REQUEST: all. */
#define WHOLE_REQUEST SIZE_MAX
int ask_raw(const char *path, const char *name, const kvmem_token *token, size_t size);
