// SPDX-License-Identifier: Apache-2.0
// A broker that serves a share, and client processes that fetch it.
#pragma once

#include "harness.h"
#include "sample.h"
#include "wire.h"

/* A broker that has published a sample as "kv". */
typedef struct server {
    scratch directory; /* accessible to every user */
    char path[160];
    kvmem_broker *broker;
    sample sample;
    kvmem_token token;
} server;

/* Options with a long timeout of clients. */
kvmem_broker_options server_options(void);
/* options NULL: those of server_options. The path is always the server's. */
void server_open(server *server, const kvmem_broker_options *options);
/* Destroys all of it, and checks that no file is left. */
void server_close(server *server);

kvmem_broker_info server_info(const server *server);
/* Waits until this number of clients is connected. Only the deadline of the process limits the wait. */
void server_await_clients(const server *server, uint64_t count);
/* Fetches and opens the sample in this process. */
void server_check_service(const server *server);

/* A fetch of a client process. */
typedef struct fetch_request {
    char path[160];
    char name[64];
    kvmem_token token;
    uint64_t flags;       /* of kvmem_fetch_options */
    uint32_t broker_user; /* with KVMEM_FETCH_BROKER_USER */
    uint32_t user;        /* user to switch to first; 0: none */
} fetch_request;

fetch_request request_of(const server *server);
/* Publishes a share under another name, and returns the request for it. */
fetch_request request_published(const server *server, const char *name, const kvmem_share *share);
/* Grants another token for the sample. */
kvmem_token server_grant(const server *server, const kvmem_publish_options *options);
/* Connects to the broker and sends `size` bytes of a request for the sample. */
int server_connect(const server *server, size_t size);
kvmem_fetch_options request_options(const fetch_request *request);

/* The result of a client's fetch. */
typedef struct fetch_result {
    kvmem_status status;
    uint32_t read_only;
    char message[400];
} fetch_result;

/* Role of a client: opens the share, sets the mark if it may write, and holds the region until its socket is
   closed. */
#define CLIENT_ROLE USES_ROLE(fetching_client, fetching_client)
void fetching_client(int socket);

/* Starts a client, and waits for the result of its fetch. */
peer client_start(const fetch_request *request, fetch_result *result);
/* The same, and ends the client. */
fetch_result client_run(const fetch_request *request);
/* The same, and checks the result. */
void client_expect(const fetch_request *request, kvmem_status status, const char *part);

/* In a peer: switches to another user. It cannot switch back. */
void switch_user(uint32_t user);
