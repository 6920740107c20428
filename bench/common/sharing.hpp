// SPDX-License-Identifier: Apache-2.0
// Shares on their way from the one process of a bench to the other.
#pragma once

#include "common/kv.hpp"
#include "common/peer.hpp"

namespace kv {

using share = std::unique_ptr<kvmem_share, destroyer<kvmem_share_destroy>>;

} // namespace kv

namespace bench {

// The bytes of a share as a message, its file descriptors after that.
void send_share(channel &link, const kv::share &given);
kv::share receive_share(channel &link);

} // namespace bench
