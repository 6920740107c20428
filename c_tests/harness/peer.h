// SPDX-License-Identifier: Apache-2.0
// Peer processes: the same binary started again with a role, which exchanges framed messages with the test
// and is always reaped.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PEER_ARGUMENT "--role"
#define PEER_SOCKET 3 /* the peer's end of the socket pair */

typedef struct peer {
    pid_t pid;
    int socket;
} peer;

/* Bytes that the caller frees. */
typedef struct message {
    unsigned char *data;
    size_t size;
} message;
void message_free(const message *message);

/* Starts this binary again, by exec and never by a plain fork, in the named role. */
peer peer_start(const char *role);
/* The same with an environment variable that is set only for the peer. */
peer peer_start_with(const char *role, const char *variable, const char *value);
/* The peer in that role that all cases share, because starting one takes long: the first case that needs it
   starts it, and a case that fails ends it. */
peer peer_shared(const char *role);
/* Ends the shared peers, as peer_finish does. */
void peer_finish_shared(void);
/* Waits until the peer ends, and checks its exit code; does nothing for a peer that was killed. */
void peer_finish(peer *peer);
/* Kills the peer as a crash would, and reaps it. */
void peer_kill(peer *peer);
/* Waits until the peer has killed itself, and checks that it did. */
void peer_await_kill(peer *peer);
/* Stops the peer by SIGSTOP, and returns once it has stopped, so that everything that needs it stays in
   flight. */
void peer_freeze(const peer *peer);
void peer_thaw(const peer *peer);
/* Kills and reaps the peers that a case left; if the case failed, the shared ones too. */
void peer_reap_all(bool with_common);

/* One frame: a tag and bytes. */
void frame_send(int socket, uint32_t tag, const void *data, size_t size);
/* Waits for the next frame; returns false if the other side has closed its end. */
bool frame_arrives(int socket);
/* Waits for the next frame, of exactly `size` bytes, and copies them to `data`; returns false if the other
   side has closed its end. */
bool frame_next_into(int socket, uint32_t *tag, void *data, size_t size);
/* Receives the next frame; fails the case if the other side has closed its end. */
message frame_receive(int socket, uint32_t *tag);
/* Calls `serve` for each frame until the other side has closed its end. */
void frames_serve(int socket, void (*serve)(int socket, uint32_t tag, const message *request));
/* Receives the next frame, which must have this tag. */
message frame_expect(int socket, uint32_t tag);
/* The same, without its bytes. */
void frame_await(int socket, uint32_t tag);
/* The same, of exactly `size` bytes, which are copied to `data`. */
void frame_expect_into(int socket, uint32_t tag, void *data, size_t size);
