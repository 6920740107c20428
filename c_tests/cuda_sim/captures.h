// SPDX-License-Identifier: Apache-2.0
// Calls that are forbidden while streams are captured.
#pragma once

#include "call.h"

/* Returns whether the calling thread may call the function now. Otherwise invalidates the captures that
   forbid it. */
CUresult captures_permit(function which);
/* Invalidates all captures of a context. Returns whether there are any. */
bool captures_invalidate_of(const context *of);
/* Returns whether the stream is a legacy one, and a blocking stream of its context is being captured. */
bool captures_affect_legacy(const stream *queried);
