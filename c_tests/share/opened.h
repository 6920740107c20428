// SPDX-License-Identifier: Apache-2.0
// Regions of a parcel, in one line.
#ifndef KVMEM_TEST_SHARE_OPENED_H
#define KVMEM_TEST_SHARE_OPENED_H

#include "parcel.h"

/* A shared region, opened with KVMEM_OPEN_* flags. */
kvmem_region *open_parcel(const parcel *parcel, uint64_t flags);
/* It is read, or opened, with this status. */
void refuse_parcel(const parcel *parcel, uint64_t flags, kvmem_status status, const char *part);
/* The same, whatever the status, which must be a failure; nothing may crash. */
kvmem_status try_parcel(const parcel *parcel, uint64_t flags);

#endif
