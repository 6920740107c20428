// SPDX-License-Identifier: Apache-2.0
#include "rates_blob.h"

/* The header of a wire form. Its checksum covers all other bytes. */
#define CHECKSUM_AT 16
#define HEADER_SIZE 20

/* Copies the rates, and destroys the blob. */
static rates_blob take(kvmem_blob *blob, size_t num_figures) {
    rates_blob rates = {.size = kvmem_blob_size(blob), .num_figures = num_figures};
    CHECK(rates.size <= sizeof(rates.bytes) && rates.size >= HEADER_SIZE + 8 * num_figures);
    memcpy(rates.bytes, kvmem_blob_data(blob), rates.size);
    kvmem_blob_destroy(blob);
    return rates;
}

rates_blob rates_get(int device) {
    GET(kvmem_blob *, blob, kvmem_cuda_get_copy_rates, device, device);
    return take(blob, NUM_RATES);
}

rates_blob rates_get_peer(int device, int peer) {
    GET(kvmem_blob *, blob, kvmem_cuda_get_copy_rates, device, peer);
    return take(blob, NUM_PEER_RATES);
}

/* Returns the offset of a figure. */
static size_t offset_of(const rates_blob *rates, size_t index) {
    CHECK(index < rates->num_figures);
    return rates->size - 8 * (rates->num_figures - index);
}

double rates_figure(const rates_blob *rates, size_t index) {
    double figure = 0;
    memcpy(&figure, rates->bytes + offset_of(rates, index), sizeof(figure));
    return figure;
}

void rates_set_figure(rates_blob *rates, size_t index, double figure) {
    memcpy(rates->bytes + offset_of(rates, index), &figure, sizeof(figure));
    const uint32_t head = crc_append(0, rates->bytes, CHECKSUM_AT);
    const uint32_t checksum = crc_append(head, rates->bytes + HEADER_SIZE, rates->size - HEADER_SIZE);
    memcpy(rates->bytes + CHECKSUM_AT, &checksum, sizeof(checksum));
}

kvmem_rates_info rates_info(const rates_blob *rates) {
    kvmem_rates_info info;
    memset(&info, 0, sizeof(info));
    EXPECT_OK(kvmem_cuda_describe_rates(rates->bytes, rates->size, &info, NULL, ERR));
    return info;
}

void rates_set(int device, const rates_blob *rates) {
    const void *data = rates != NULL ? rates->bytes : NULL;
    EXPECT_OK(kvmem_cuda_set_copy_rates(device, device, data, rates != NULL ? rates->size : 0, ERR));
}

void rates_set_peer(int device, int peer, const rates_blob *rates) {
    const void *data = rates != NULL ? rates->bytes : NULL;
    EXPECT_OK(kvmem_cuda_set_copy_rates(device, peer, data, rates != NULL ? rates->size : 0, ERR));
}
