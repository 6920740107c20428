// SPDX-License-Identifier: Apache-2.0
// An offer of which damaged copies are opened. They leak nothing, and the offer stays usable.
#pragma once

#include "kept_context.h"
#include "offer.h"
#include "opened.h"

typedef struct target {
    offer offer;
    parcel parcel; /* the offer's */
    size_t files;  /* open in this process */
} target;

static inline void target_open(target *target, memory_kind kind, const kvmem_share_options *options) {
    keep_context();
    offer_open_of(&target->offer, holder_shared(), kind, options);
    target->parcel = target->offer.parcel;
    /* warm-up: creates per-process state */
    CALL(kvmem_region_destroy(open_parcel(&target->parcel, 0)));
    target->files = count_open_files();
}

/* Nothing is left open, in this process or in the owner. */
static inline void target_check(const target *target) {
    CHECK_EQ(count_open_files(), target->files);
    CHECK_EQ(offer_importers(&target->offer), 0);
}

static inline void target_close(target *target) {
    target_check(target);
    kvmem_region *region = open_parcel(&target->parcel, 0);
    memory_check(region, 1);
    EXPECT_OK(kvmem_region_check_owner(region, ERR));
    CALL(kvmem_region_destroy(region));
    holder_clear(&target->offer.owner);
    offer_detach(&target->offer);
}
