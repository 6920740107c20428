// SPDX-License-Identifier: Apache-2.0
// Every driver call of virtual memory that goes by fabric handles or lies on the host fails in turn: nothing
// leaks, the error says what the driver said, and the operation works afterwards.
#include "stance.h"
#include "walk.h"

WALK_CASES
