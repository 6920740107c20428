/* SPDX-License-Identifier: Apache-2.0 */
/* Only the header HEADER, twice: it needs no other header, and has an include guard. */
#include HEADER
#include HEADER
