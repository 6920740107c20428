// SPDX-License-Identifier: Apache-2.0
// The requests of a test to its peer process.
#pragma once

#include <kvmem.h>
#include <kvmem/nixl.h>
#include <stdbool.h>
#include <stdint.h>

#include "kv.h"

/* The reply to a request has the same tag. */
enum {
    KV_PEER_OPEN = 1,   /* kv_peer_setup -> metadata, then layout descriptor */
    KV_PEER_LOAD,       /* metadata -> nothing */
    KV_PEER_IMAGE,      /* nothing -> every byte of its memory */
    KV_PEER_TAKE,       /* nothing -> name of the sender with its NUL, then the bytes */
    KV_PEER_NOTIFY,     /* name with its NUL, then a second frame of bytes -> nothing */
    KV_PEER_INVALIDATE, /* name with its NUL -> nothing */
};

typedef struct kv_peer_setup {
    char name[32];
    kv_sent_config shape;
    uint64_t seed;
    bool is_served; /* with these options */
    kvmem_serve_options serve;
} kv_peer_setup;
