/* SPDX-License-Identifier: Apache-2.0 */
/* All calls of the tables. */
#include "calls.h"

#include <stdlib.h>
#include <string.h>

kvmem_status add_blob(struct step *step, const char *key, kvmem_blob *blob, kvmem_status status)
{
    if (status < 0) return status;
    add_text(step, key, kvmem_blob_data(blob));
    kvmem_blob_destroy(blob);
    return status;
}

kvmem_status store_blob(struct step *step, const char *key, kvmem_blob *blob, kvmem_status status)
{
    const char *name = text_of(step, key);
    if (status < 0) return status;
    store_bytes(name, kvmem_blob_data(blob), kvmem_blob_size(blob));
    kvmem_blob_destroy(blob);
    return status;
}

const void *stored_bytes(struct step *step, const char *key, size_t *size)
{
    const unsigned char *stored = find_bytes(text_of(step, key), size);
    unsigned char *bytes = keep(malloc(*size + 1));
    memcpy(bytes, stored, *size);
    if (has(step, "flip")) {
        const uint64_t at = number_of(step, "flip");
        if (at >= *size) fail("there is no byte %llu", (unsigned long long)at);
        bytes[at] ^= 0xff;
    }
    return bytes;
}

static kvmem_status status_name(struct step *step, kvmem_error **error)
{
    (void)error;
    add_text(step, "name", kvmem_status_name((kvmem_status)number_of(step,
                                                                     "value")) + strlen("KVMEM_STATUS_"));
    return KVMEM_STATUS_OK;
}

static kvmem_status destroy(struct step *step, kvmem_error **error)
{
    (void)error;
    destroy_object(step_name(step));
    return KVMEM_STATUS_OK;
}

static const struct call other_calls[] = {
    {"status_name", .run = status_name},
    {"destroy", .run = destroy},
    {.name = NULL},
};

static kvmem_status create_object(const struct call *call, struct step *step, kvmem_error **error)
{
    const char *name = new_name(step);
    union handle made = {NULL};
    const kvmem_status status = call->create(step, &made, error);
    return add_object(name, call->type, made, status);
}

kvmem_status run_call(struct step *step, kvmem_error **error)
{
    const struct call *const lists[] = {other_calls, region_calls,   gpu_calls,   layout_calls, block_calls,
                                        agent_calls, transfer_calls, share_calls, store_calls,  simple_calls};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct call *call = lists[i]; call->name; call++)
            if (strcmp(call->name, step->call) == 0)
                return call->create ? create_object(call, step, error) : call->run(step, error);
    fail("there is no call %s", step->call);
}
