// SPDX-License-Identifier: Apache-2.0
// A little of everything the library does with a GPU, call by call in the current stance.
#pragma once

/* Regions, views, adoption, layouts and copies on one device, and what is refused there; leaves nothing. */
void work_on(int device);
/* The part without transfers: when it returns, everything is given back. A transfer's stream is given back by
   the thread that saw its end, which may take a moment longer. */
void work_on_memory(int device);
/* Waits until nobody holds the device's primary context. */
void await_no_context(int device);
