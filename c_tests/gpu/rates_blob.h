// SPDX-License-Identifier: Apache-2.0
// Copy rates as bytes, with figures that a test can change. The figures are the last bytes, eight bytes each,
// and a checksum covers them.
#pragma once

#include "harness.h"

/* Indexes of the figures of one GPU, and of a pair. Rates are in bytes per second, durations in seconds. */
enum {
    RATE_TO_DEVICE = 0,
    RATE_TO_DEVICE_BATCH = 1,
    RATE_TO_HOST = 4,
    RATE_TO_HOST_KERNEL = 6,
    RATE_CTA_ON_DEVICE = 11,
    RATE_COPY = 13,
    RATE_KERNEL_START = 14,
    NUM_RATES = 15,
    PEER_RATE_READ = 0,
    PEER_RATE_READ_CTA = 3,
    PEER_RATE_WRITE = 4, PEER_RATE_WRITE_BATCH = 5, PEER_RATE_WRITE_KERNEL = 6, NUM_PEER_RATES = 8,
};

typedef struct rates_blob {
    unsigned char bytes[512];
    size_t size;
    size_t num_figures;
} rates_blob;

/* Return the rates of a GPU, or of a GPU and its peer. */
rates_blob rates_get(int device);
rates_blob rates_get_peer(int device, int peer);
double rates_figure(const rates_blob *rates, size_t index);
/* Also updates the checksum. */
void rates_set_figure(rates_blob *rates, size_t index, double figure);
kvmem_rates_info rates_info(const rates_blob *rates);
/* NULL discards the rates. */
void rates_set(int device, const rates_blob *rates);
void rates_set_peer(int device, int peer, const rates_blob *rates);
