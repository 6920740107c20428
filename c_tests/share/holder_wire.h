// SPDX-License-Identifier: Apache-2.0
// What the test asks of a holder.
#pragma once

#include "holder.h"

/* Each is answered under its own tag, where nothing is said with a status. */
enum {
    HOLDER_MAKE = 1,
    HOLDER_BUILD,
    HOLDER_SHARE, /* status, then a parcel where that is OK */
    HOLDER_END_SHARES,
    HOLDER_DESTROY,
    HOLDER_OPEN, /* followed by a parcel */
    HOLDER_MESSAGE, /* text, of the failure that was last */
    HOLDER_OPEN_LAYOUT, /* followed by a parcel */
    HOLDER_CLOSE,
    HOLDER_CHECK,
    HOLDER_FILL,
    HOLDER_MODEL, /* followed by a frame with all that the model expects */
    HOLDER_INFO,  /* kvmem_region_info */
    HOLDER_HOLDERS, /* kvmem_region_holders */
    HOLDER_OWNER,
    HOLDER_COMMIT,
    HOLDER_DECOMMIT,
    HOLDER_RESIZE,
    HOLDER_MEMORY, /* uint64_t */
    HOLDER_FORK,
};

/* Every request has one; what it does not need is zero. */
typedef struct holder_request {
    uint64_t offset;
    uint64_t size;
    uint64_t flags;
    uint64_t layout_kind;
    uint32_t way;
    uint32_t kind;
    uint32_t seed;
    uint32_t which;
    char path[160];
    char agent[32];
} holder_request;
