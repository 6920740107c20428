// SPDX-License-Identifier: Apache-2.0
// What may not be called while streams are captured.
#pragma once

#include "call.h"

/* Whether the calling thread may call it now. Where it may not, the captures that forbid it end in
   failure. */
CUresult captures_permit(function which);
