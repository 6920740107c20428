// SPDX-License-Identifier: Apache-2.0
// The main function of programs without their own.
#include "harness.h"

int main(int argc, char **argv) { return test_main(argc, argv, test_registered()); }
