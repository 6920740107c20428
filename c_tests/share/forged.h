// SPDX-License-Identifier: Apache-2.0
// Manifests that were tampered with by somebody who knows the checksum.
#pragma once

#include "harness.h"
#include "parcel.h"

/* Bytes before the fields. */
#define FORGED_HEADER 20

/* Makes the length and the checksum right again. */
void forge_seal(parcel *parcel);
/* Gives the first field of that name another value, then seals. The field must be there. */
void forge_integer(parcel *parcel, const char *field, uint64_t value);
void forge_text(parcel *parcel, const char *field, const char *value);
/* Flips the last bit of a field of bytes. */
void forge_bytes(parcel *parcel, const char *field);
/* Gives a field of bytes these, fewer than 64 KiB. */
void forge_blob(parcel *parcel, const char *field, const void *data, size_t size);
uint64_t forged_integer(const parcel *parcel, const char *field);
/* Where the value of a field of bytes begins: it has at least `size` of them. */
unsigned char *forged_bytes(const parcel *parcel, const char *field, size_t size);
/* Whether a byte is of a handle of the driver's, a byte string of 64. What it makes of another one is the
   driver's: an H200's may open memory that can't be read, and then fails for good. */
bool forged_is_of_handle(const message *bytes, size_t at);
