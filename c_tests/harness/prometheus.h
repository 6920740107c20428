// SPDX-License-Identifier: Apache-2.0
// A strict check of Prometheus's text format, version 0.0.4, as kvmem writes it.
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Fails if the text has a mistake. */
void prometheus_check(const char *text);
/* Returns what is wrong, or NULL. */
const char *prometheus_mistake(const char *text);
/* The sum of the values that the text of the process has for the series of a metric whose labels end with these, and how many series
   there are. Fails if the text has a mistake. */
uint64_t prometheus_sum(const char *metric, const char *labels, size_t *series);
