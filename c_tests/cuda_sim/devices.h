// SPDX-License-Identifier: Apache-2.0
// Devices: which there are, what they can do, whether they reach each other.
#pragma once

#include "state.h"

bool device_exists(CUdevice device);
/* Whether the device can reach memory of the owner, which is itself, a peer, or the host (NO_ORDINAL). */
bool device_reaches(CUdevice device, CUdevice owner);
/* The ordinal of a device by its physical number; NO_ORDINAL when this process may not use it. */
CUdevice device_of_physical(int physical);

/* The value of an attribute that is the same for all devices; false when there is no such attribute. */
bool attribute_get(CUdevice_attribute attribute, int *value);
bool attribute_is_set(CUdevice_attribute attribute);
void attributes_reset(void);
/* Under the lock. */
void attribute_set(CUdevice_attribute attribute, int value);
