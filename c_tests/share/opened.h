// SPDX-License-Identifier: Apache-2.0
// Opens the region or layout of a parcel in one call.
#pragma once

#include "harness.h"
#include "parcel.h"

/* Whether the functions below pass KVMEM_OPEN_TRUST_OWNER, which reserved huge pages need. Default: true. */
void trust_owners(bool do_trust);

/* Opens a shared region with KVMEM_OPEN_* flags. */
kvmem_region *open_parcel(const parcel *parcel, uint64_t flags);
/* The same for use by a GPU of this process. */
kvmem_region *open_parcel_for(const parcel *parcel, uint64_t flags, int device);
kvmem_layout *open_layout_for(const parcel *parcel, uint64_t flags, int device);
/* Returns any status. Sets the error slot. */
kvmem_status try_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_region **region);
void refuse_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_status status,
                       const char *part);
/* Opens a shared layout; the agent may be NULL. */
kvmem_layout *open_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent);
void refuse_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent, kvmem_status status,
                   const char *part);
/* Expects this status and a part of the message. */
void refuse_parcel(const parcel *parcel, uint64_t flags, kvmem_status status, const char *part);
/* Returns any status. Sets the error slot. */
kvmem_status try_parcel(const parcel *parcel, uint64_t flags);
