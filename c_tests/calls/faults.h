// SPDX-License-Identifier: Apache-2.0
// Failures from below while one call runs: of a driver call, or because there are no file descriptors,
// threads, or memory of the kernel's.
#pragma once

#include "fuzz.h"

/* With --faults: for some calls, plans a failure. */
void faults_begin(fuzz *fuzz);
/* Forgets it. */
void faults_end(void);
/* Whether driver calls of this thread are those of an engine, which do not fail. */
void faults_spare(bool is_spared);
/* Calls for which one was planned. */
uint64_t faults_planned(void);
/* Threads of the library that could not be started. */
uint64_t faults_refused_threads(void);
