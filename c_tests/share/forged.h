// SPDX-License-Identifier: Apache-2.0
// Manifests that an attacker has changed and sealed with a valid checksum.
#pragma once

#include "harness.h"
#include "parcel.h"

/* Bytes before the fields. */
#define FORGED_HEADER 20

/* Sets the length and the checksum. */
void forge_seal(parcel *parcel);
/* Sets the first field of that name, which must exist, and seals the manifest. */
void forge_integer(parcel *parcel, const char *field, uint64_t value);
void forge_text(parcel *parcel, const char *field, const char *value);
/* Flips the last bit of a byte string. */
void forge_bytes(parcel *parcel, const char *field);
/* Replaces a byte string by these bytes, fewer than 64 KiB. */
void forge_blob(parcel *parcel, const char *field, const void *data, size_t size);
uint64_t forged_integer(const parcel *parcel, const char *field);
/* Returns the start of the value of a byte string, which must have at least `size` bytes. */
unsigned char *forged_bytes(const parcel *parcel, const char *field, size_t size);
/* Whether a byte belongs to a handle of the driver, a byte string of 64. What a driver does with a changed
   handle is not specified: on an H200 it may open memory that cannot be read, after which every call
   fails. */
bool forged_is_of_handle(const message *bytes, size_t at);
