// SPDX-License-Identifier: Apache-2.0
// A server of objects on loopback that speaks S3's wire form over HTTP, without signatures: what it sends for a request is a function
// of the test.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { S3_MAX_KEY = 128 };

typedef struct s3_request {
    char method[8], key[S3_MAX_KEY];
} s3_request;

/* What an honest server sends for a request: a head, which ends with an empty line, and a body. */
typedef struct s3_reply {
    char head[256];
    unsigned char *body;
    size_t size;
} s3_reply;

/* Sends something to a client that has sent a whole request. Returns whether the server goes on with the connection. */
typedef bool s3_send(int client, const s3_request *request, const s3_reply *reply);

/* Listens, and serves each connection on a thread of its own until the process ends. The objects that it gets are those that it has.
   Returns the endpoint, which is valid until the process ends. */
const char *s3_serve(s3_send *sends);
/* From the next request on. */
void s3_set_send(s3_send *sends);

/* Sends what an honest server does. */
bool s3_send_reply(int client, const s3_request *request, const s3_reply *reply);
/* Sends bytes. Returns false if the client has closed the connection. */
bool s3_send_bytes(int client, const void *bytes, size_t size);
bool s3_send_text(int client, const char *text);
