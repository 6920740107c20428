// SPDX-License-Identifier: Apache-2.0
// All that a test includes: the framework, its helpers, and what of the C library every other test uses.
#pragma once

#include "agents.h"
#include "child.h"
#include "completions.h"
#include "crc.h"
#include "fds.h"
#include "file_side.h"
#include "framework.h"
#include "gate.h"
#include "held_call.h"
#include "kv.h"
#include "numa.h"
#include "orders.h"
#include "peer.h"
#include "regions.h"
#include "resources.h"
#include "scarce_threads.h"
#include "users.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
