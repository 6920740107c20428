// SPDX-License-Identifier: Apache-2.0
// Starts a holder, which creates a region and shares it.
#include "offer.h"

void offer_open_of(offer *offer, peer owner, memory_kind kind, const kvmem_share_options *options) {
    offer->directory = scratch_create(temporary_directory());
    offer->owner = owner;
    holder_make(&offer->owner, kind, scratch_file(&offer->directory, "region"), 1);
    offer->parcel = holder_share(&offer->owner, options);
}

void offer_open(offer *offer, memory_kind kind, const kvmem_share_options *options) {
    offer_open_of(offer, holder_start(), kind, options);
}

void offer_detach(offer *offer) {
    parcel_close(&offer->parcel);
    scratch_remove(&offer->directory);
}

void offer_close(offer *offer) {
    peer_finish(&offer->owner);
    offer_detach(offer);
}

uint64_t offer_importers(const offer *offer) { return holder_holders(&offer->owner, HOLDING_OWN).importers; }

parcel parcel_of_region(const kvmem_region *region, const kvmem_share_options *options) {
    OWN(kvmem_share, share, kvmem_share_create_region, region, options);
    return parcel_of(share);
}
