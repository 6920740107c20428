// SPDX-License-Identifier: Apache-2.0
// One program of files with exceptions, with results, and in C++20.
#include "mixed.hpp"

#include "fixtures.hpp"

CASE(files_of_all_kinds_work_in_one_program) {
    auto region = kvmem::Region::create_system(system_memory(4096));
    CHECK(fails_with_a_result(region.get()));
    CHECK(size_in_cpp20(region.get()) == 4096);
    CHECK(error_of([&] { return region.create_view(0, 1 << 30); }).status() == kvmem::Status::out_of_range);
}

int main() { return run_cases(); }
