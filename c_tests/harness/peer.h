// SPDX-License-Identifier: Apache-2.0
// Peer processes: the same binary started afresh with a role, spoken to in framed messages, always reaped.
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

/* Bytes that belong to the caller. */
typedef struct message {
    unsigned char *data;
    size_t size;
} message;
void message_free(const message *message);

/* Starts this binary again, by exec and never by a bare fork, in the named role. */
peer peer_start(const char *role);
/* The same with a variable of its environment set, which this process keeps as it has it. */
peer peer_start_with(const char *role, const char *variable, const char *value);
/* The peer in that role that the cases have in common, for what takes long to start: the first case that asks
   starts it, and one that fails takes it along. */
peer peer_in_common(const char *role);
/* Ends those, as peer_finish does. */
void peer_finish_common(void);
/* Waits for the peer to end by itself and checks that it ended well; does nothing for one that was killed. */
void peer_finish(peer *peer);
/* Kills the peer without a warning, as a crash would, and reaps it. */
void peer_kill(peer *peer);
/* Waits for the peer to kill itself so, and checks that it did. */
void peer_await_kill(peer *peer);
/* Freezes the peer; returns once it is frozen, so that whatever needs its help stays in flight. */
void peer_freeze(const peer *peer);
void peer_thaw(const peer *peer);
/* Kills and reaps what a case left behind; with what cases have in common, if it failed. */
void peer_reap_all(bool with_common);

/* One frame: a tag and bytes. */
void frame_send(int socket, uint32_t tag, const void *data, size_t size);
/* Waits for the next frame; false once the other side has closed its end. */
bool frame_comes(int socket);
/* Waits for the next frame, of just so many bytes, which are copied to `data`; false once the other side has
   closed its end. */
bool frame_next_into(int socket, uint32_t *tag, void *data, size_t size);
/* The next frame; fails the case when the other side has gone. */
message frame_receive(int socket, uint32_t *tag);
/* Has each frame served until the other side has closed its end. */
void frames_serve(int socket, void (*serve)(int socket, uint32_t tag, const message *request));
/* The next frame, which must bear this tag. */
message frame_expect(int socket, uint32_t tag);
/* The same, without its bytes. */
void frame_await(int socket, uint32_t tag);
/* The same, of just so many bytes, which are copied to `data`. */
void frame_expect_into(int socket, uint32_t tag, void *data, size_t size);
