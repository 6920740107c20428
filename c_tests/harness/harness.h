// SPDX-License-Identifier: Apache-2.0
// Everything that a test includes: the framework, its helpers, and headers of the C library that many tests
// use.
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
#include "infos.h"
#include "kv.h"
#include "load.h"
#include "numa.h"
#include "orders.h"
#include "peer.h"
#include "python.h"
#include "regions.h"
#include "resources.h"
#include "scarce_threads.h"
#include "store.h"
#include "threads.h"
#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
