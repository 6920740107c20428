// SPDX-License-Identifier: Apache-2.0
// A broker with something on offer, and customers: other processes that fetch it.
#pragma once

#include "goods.h"
#include "harness.h"
#include "wire.h"

/* A broker that offers goods as "kv". */
typedef struct shop {
    scratch directory; /* which every user may enter */
    char path[160];
    kvmem_broker *broker;
    goods goods;
    kvmem_token token;
} shop;

/* Options of a broker that is patient; its path is the shop's. */
kvmem_broker_options shop_options(void);
/* Without options, those of shop_options. */
void shop_open(shop *shop, const kvmem_broker_options *options);
/* Destroys all of it, and checks that nothing is left at the path. */
void shop_close(shop *shop);

kvmem_broker_info shop_info(const shop *shop);
/* Waits until so many clients are connected. The process's deadline bounds the wait. */
void shop_await_clients(const shop *shop, uint64_t count);
/* Fetches in this process, as one who behaves. */
void shop_check_service(const shop *shop);

/* What a customer is to do. */
typedef struct order {
    char path[160];
    char name[64];
    kvmem_token token;
    uint64_t flags;       /* of its kvmem_fetch_options */
    uint32_t broker_user; /* with KVMEM_FETCH_BROKER_USER */
    uint32_t user;        /* whom to become first; 0 to stay */
} order;

order order_from(const shop *shop);
/* Publishes a share under another name, and orders that. */
order order_published(const shop *shop, const char *name, const kvmem_share *share);
/* Has the broker grant another token for its goods. */
kvmem_token shop_grant(const shop *shop, const kvmem_publish_options *options);
/* A connection to the broker on which that many bytes of a request for its goods were sent. */
int shop_ask(const shop *shop, size_t size);
kvmem_fetch_options order_options(const order *order);

/* How it went. */
typedef struct receipt {
    kvmem_status status;
    uint32_t read_only;
    char message[400];
} receipt;

/* Roles. A customer opens what it got, leaves its mark if it may, and holds it until its socket closes. */
#define SHOP_ROLES USES_ROLE(customer, customer)
void customer(int socket);

/* Starts a customer, and answers how its order went. */
peer customer_start(const order *order, receipt *receipt);
/* The same, and the customer leaves. */
receipt customer_send(const order *order);
/* The same, and it must have gone so. */
void customer_expect(const order *order, kvmem_status status, const char *part);

/* In another process: another user for good. */
void become(uint32_t user);
