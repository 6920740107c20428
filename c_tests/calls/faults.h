// SPDX-License-Identifier: Apache-2.0
// Failures below the library during one call: a driver call fails, or there are no file descriptors, threads,
// or memory of the kernel.
#pragma once

#include "fuzz.h"

/* With --faults: plans a failure for some calls. */
void faults_begin(fuzz *fuzz);
/* Cancels the plan. */
void faults_end(void);
/* Whether driver calls of this thread are those of an engine, which do not fail. */
void faults_spare(bool is_spared);
/* Number of calls with a planned failure. */
uint64_t faults_planned(void);
/* Number of threads that the library could not start. */
uint64_t faults_refused_threads(void);
