/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing but the header HEADER, twice: it needs no other header before it, and guards itself. */
#include HEADER
#include HEADER
