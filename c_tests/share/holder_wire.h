// SPDX-License-Identifier: Apache-2.0
// The requests to a holder.
#pragma once

#include "holder.h"

/* The reply has the same tag. Its content is a status unless noted. */
enum {
    HOLDER_MAKE = 1,
    HOLDER_BUILD,
    HOLDER_SHARE, /* status; if OK, then a parcel */
    HOLDER_END_SHARES,
    HOLDER_DESTROY,
    HOLDER_OPEN, /* followed by a parcel */
    HOLDER_MESSAGE, /* text of the last failure */
    HOLDER_OPEN_LAYOUT, /* followed by a parcel */
    HOLDER_CLOSE,
    HOLDER_CHECK,
    HOLDER_FILL,
    HOLDER_MODEL, /* followed by a frame with the expected bytes */
    HOLDER_INFO,  /* kvmem_region_info */
    HOLDER_HOLDERS, /* kvmem_region_holders */
    HOLDER_OWNER,
    HOLDER_COMMIT,
    HOLDER_DECOMMIT,
    HOLDER_RESIZE,
    HOLDER_MEMORY, /* uint64_t */
    HOLDER_FORK,
};

/* Every request has one. Unused fields are zero. */
typedef struct holder_request {
    uint64_t offset;
    uint64_t size;
    uint64_t flags;
    uint64_t layout_kind;
    uint32_t transport;
    uint32_t kind;
    uint32_t seed;
    uint32_t which;
    char path[160];
    char agent[32];
} holder_request;
