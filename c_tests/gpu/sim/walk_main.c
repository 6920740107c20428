// SPDX-License-Identifier: Apache-2.0
// Makes each driver call of the operations that the program is linked with fail; see walk.h.
#include "caller_context.h"
#include "walk.h"

WALK_CASES
