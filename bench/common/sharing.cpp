// SPDX-License-Identifier: Apache-2.0
// What a share is made of, over the socket that the two processes have.
#include "common/sharing.hpp"

#include "reference/fd_passing.hpp"

namespace bench {

void send_share(channel &link, const kv::share &given)
{
    kvmem_share_info info{};
    kv::call(kvmem_share_get_info, given.get(), &info);
    std::vector<int> fds;
    for (size_t index = 0; index < info.num_fds; ++index) {
        int32_t fd = -1;
        kv::call(kvmem_share_get_fd, given.get(), index, &fd);
        fds.push_back(fd);
    }
    send_value(link, info.num_fds);
    link.send(kvmem_share_data(given.get(), nullptr), info.size);
    reference::send_fds(link.fd(), fds);
}

kv::share receive_share(channel &link)
{
    const auto count = value_of<uint64_t>(link.receive());
    const std::vector<unsigned char> bytes = link.receive();
    const std::vector<int> fds = reference::receive_fds(link.fd(), count);
    auto received = kv::make<kv::share>(kvmem_share_create_received, bytes.data(), bytes.size(), fds.data(),
                                        fds.size());
    reference::close_all(fds);
    return received;
}

} // namespace bench
