// SPDX-License-Identifier: Apache-2.0
// Failures from below while one call runs: of a driver call, or because there are no file descriptors.
#pragma once

#include "fuzz.h"

/* With --faults: for some calls, plans a failure. */
void faults_begin(fuzz *fuzz);
/* Forgets it. */
void faults_end(void);
/* Calls for which one was planned. */
uint64_t faults_planned(void);
