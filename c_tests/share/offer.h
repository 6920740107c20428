// SPDX-License-Identifier: Apache-2.0
// A region that another process has and shares: what most cases begin with.
#pragma once

#include "holder.h"

typedef struct offer {
    scratch directory; /* with the file of MEMORY_NAMED */
    peer owner;
    parcel parcel;
} offer;

/* A region of that kind, filled from seed 1. Options NULL: all of it, to read and to write. */
void offer_open(offer *offer, memory_kind kind, const kvmem_share_options *options);
/* The same of a process that the test has started, which is the caller's to end: call offer_forget. */
void offer_open_of(offer *offer, peer owner, memory_kind kind, const kvmem_share_options *options);
/* Ends the owner, unless the case has ended it. */
void offer_close(offer *offer);
/* All but that. */
void offer_forget(offer *offer);
/* How many processes have it open, as its owner counts. */
uint64_t offer_importers(const offer *offer);
/* A region of that kind in this process, which a parcel is made of. */
parcel parcel_of_region(const kvmem_region *region, const kvmem_share_options *options);
