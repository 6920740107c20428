// SPDX-License-Identifier: Apache-2.0
// Calls a sample of kvmem's functions for a GPU, and checks the current context after each call.
#pragma once

/* Regions, views, adoption, layouts, copies, and calls that fail, on one device. Destroys all objects. */
void exercise_device(int device);
/* The part without transfers. On return, everything is released. After a transfer, a thread of kvmem releases
   the stream, which may happen after the function has returned. */
void exercise_memory(int device);
/* Waits until the device's primary context is released. */
void await_context_release(int device);
