// SPDX-License-Identifier: Apache-2.0
// Every driver call of the operations that a program is linked with fails in turn: nothing leaks, the
// caller's context stays, the error says what the driver said, and the operation works afterwards.
#include "stance.h"
#include "walk.h"

WALK_CASES
