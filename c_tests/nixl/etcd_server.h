// SPDX-License-Identifier: Apache-2.0
// An etcd server for tests, on the loopback interface, with its own port and folder.
#pragma once

#include "harness.h"

typedef struct etcd_server {
    pid_t pid;
    int log;
    pthread_t reader; /* of its log */
    int port;
    bool has_tls;
    char folder[128];
    char endpoint[64];
    char authority[160];   /* the certificate that signs the others */
    char certificate[160]; /* of the server and the clients */
    char key[160];
} etcd_server;

/* Starts it, and waits until it serves clients. With TLS it requires client certificates. */
void etcd_server_open(etcd_server *server, bool has_tls);
/* Ends it, and removes its files. */
void etcd_server_close(etcd_server *server);
/* Kills it, as a crash would. */
void etcd_server_kill(etcd_server *server);
/* Starts it again at the same port, with or without its data. */
void etcd_server_restart(etcd_server *server, bool keeps_data);
/* Stops it by SIGSTOP, and continues it. */
void etcd_server_freeze(const etcd_server *server);
void etcd_server_thaw(const etcd_server *server);
/* Runs etcdctl with these arguments, which end with NULL, and these bytes as input. */
void etcd_control(const etcd_server *server, const char *const *arguments, const void *input, size_t size);
#define ETCD_CONTROL(server, ...)                                                                    \
    etcd_control(server, (const char *const[]){__VA_ARGS__, NULL}, NULL, 0)
