// SPDX-License-Identifier: Apache-2.0
// The main function of programs whose cases run in each stance.
#include "stance.h"

int main(int argc, char **argv) { return stance_main(argc, argv, test_registered()); }
