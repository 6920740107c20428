// SPDX-License-Identifier: Apache-2.0
// All calls of the tables.
#include "calls.hpp"

#include <cstring>

namespace {

Calls all_calls() {
    Calls calls = {
        {"status_name", [](const Step &step, World &) -> Results {
             const auto status = static_cast<kvmem::Status>(static_cast<std::int64_t>(step.number("value")));
             return {{"name", std::string(kvmem::name(status)).substr(std::strlen("KVMEM_STATUS_"))}};
         }},
        {"destroy", [](const Step &step, World &world) -> Results {
             world.destroy(step.name());
             return {};
         }},
    };
    for (const auto part :
         {region_calls, gpu_calls, layout_calls, block_calls, agent_calls, transfer_calls, share_calls,
          store_calls, simple_calls}) {
        calls.merge(part());
    }
    return calls;
}

}  // namespace

Results run_step(const Step &step, World &world) {
    static const Calls calls = all_calls();
    const auto found = calls.find(step.call());
    if (found == calls.end()) throw Failure("there is no call " + step.call());
    return found->second(step, world);
}
