// SPDX-License-Identifier: Apache-2.0
// Regions and layouts of a parcel, in one line.
#pragma once

#include "harness.h"
#include "parcel.h"

/* Whether the functions below open reserved huge pages too, which memory of a kind may have. They do,
 * unless told. */
void trust_owners(bool do_trust);

/* A shared region, opened with KVMEM_OPEN_* flags. */
kvmem_region *open_parcel(const parcel *parcel, uint64_t flags);
/* The same for a GPU of this process's to use. */
kvmem_region *open_parcel_for(const parcel *parcel, uint64_t flags, int device);
kvmem_layout *open_layout_for(const parcel *parcel, uint64_t flags, int device);
/* Whatever comes of it. With the error slot. */
kvmem_status try_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_region **region);
void refuse_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_status status,
                       const char *part);
/* A shared layout; the agent may be NULL. */
kvmem_layout *open_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent);
void refuse_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent, kvmem_status status,
                   const char *part);
/* It is read, or opened, with this status. */
void refuse_parcel(const parcel *parcel, uint64_t flags, kvmem_status status, const char *part);
/* The same, whatever comes of it. With the error slot. */
kvmem_status try_parcel(const parcel *parcel, uint64_t flags);
