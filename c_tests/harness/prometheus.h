// SPDX-License-Identifier: Apache-2.0
// A strict check of Prometheus's text format, version 0.0.4, as kvmem writes it.
#pragma once

/* Fails if the text has a mistake. */
void prometheus_check(const char *text);
/* Returns what is wrong, or NULL. */
const char *prometheus_mistake(const char *text);
