/* SPDX-License-Identifier: Apache-2.0 */
/* All calls of the tables. */
#include "calls.h"

#include <string.h>

static kvmem_status status_name(struct step *step, kvmem_error **error)
{
    (void)error;
    add_text(step, "name", kvmem_status_name((kvmem_status)number_of(step, "value")) + strlen("KVMEM_STATUS_"));
    return KVMEM_STATUS_OK;
}

static kvmem_status destroy(struct step *step, kvmem_error **error)
{
    (void)error;
    destroy_object(step_name(step));
    return KVMEM_STATUS_OK;
}

static const struct call other_calls[] = {
    {"status_name", status_name},
    {"destroy", destroy},
    {NULL, NULL},
};

kvmem_status run_call(struct step *step, kvmem_error **error)
{
    const struct call *const lists[] = {other_calls, region_calls, layout_calls, block_calls, transfer_calls, share_calls};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct call *call = lists[i]; call->name; call++)
            if (strcmp(call->name, step->call) == 0) return call->run(step, error);
    fail("there is no call %s", step->call);
}
