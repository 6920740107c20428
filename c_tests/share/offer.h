// SPDX-License-Identifier: Apache-2.0
// A region that another process has and shares. Most cases start with one.
#pragma once

#include "holder.h"

typedef struct offer {
    scratch directory; /* with the file of MEMORY_NAMED */
    peer owner;
    parcel parcel;
} offer;

/* A region of that kind, filled from seed 1. Options NULL: all of it, for reading and writing. */
void offer_open(offer *offer, memory_kind kind, const kvmem_share_options *options);
/* The same by a process that the test has started and ends; call offer_detach instead of offer_close. */
void offer_open_of(offer *offer, peer owner, memory_kind kind, const kvmem_share_options *options);
/* Ends the owner, unless the case has ended it. */
void offer_close(offer *offer);
/* The same without ending the owner. */
void offer_detach(offer *offer);
/* Number of processes that have it open, as its owner counts. */
uint64_t offer_importers(const offer *offer);
/* Creates a region of that kind in this process, and returns its parcel. */
parcel parcel_of_region(const kvmem_region *region, const kvmem_share_options *options);
