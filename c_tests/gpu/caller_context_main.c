// SPDX-License-Identifier: Apache-2.0
// The main function of programs whose cases run without and with a current context.
#include "caller_context.h"

int main(int argc, char **argv) { return caller_context_main(argc, argv, test_registered()); }
