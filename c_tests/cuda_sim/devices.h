// SPDX-License-Identifier: Apache-2.0
// Devices: which exist, their attributes, and peer access.
#pragma once

#include "state.h"

bool device_exists(CUdevice device);
/* Returns whether the device can access memory of the owner: itself, a peer, or the host (NO_ORDINAL). */
bool device_reaches(CUdevice device, CUdevice owner);
/* Returns the ordinal of a device by its physical number; NO_ORDINAL if it is not visible to this process. */
CUdevice device_of_physical(int physical);

/* Gets the value of an attribute, the same for all devices. Returns false if there is no such attribute. */
bool attribute_get(CUdevice_attribute attribute, int *value);
/* Returns whether the value is not 0. */
bool attribute_is_set(CUdevice_attribute attribute);
void attributes_reset(void);
/* Under the lock. */
void attribute_set(CUdevice_attribute attribute, int value);
