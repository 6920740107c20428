// SPDX-License-Identifier: Apache-2.0
// The driver's copies on a stream that does not wait for the legacy default stream.
#include "reference/copies.hpp"

namespace cuda {
namespace {

// CUmemcpySrcAccessOrder and CUmemcpyFlags.
constexpr int order_of_stream = 1;
constexpr int order_any = 3;
constexpr unsigned prefer_overlap_with_compute = 1;

} // namespace

void copy_list::append(address destination, address source, size_t size)
{
    if (!to.empty() && to.back() + sizes.back() == destination && from.back() + sizes.back() == source) {
        sizes.back() += size;
        return;
    }
    to.push_back(destination);
    from.push_back(source);
    sizes.push_back(size);
}

own_stream::own_stream() { check(load().stream_create(&handle_, stream_non_blocking), "cuStreamCreate"); }

own_stream::~own_stream() { load().stream_destroy(handle_); }

void own_stream::wait() const { check(load().stream_synchronize(handle_), "cuStreamSynchronize"); }

void copy_each(const copy_list &list, const own_stream &on)
{
    const library &driver = load();
    for (size_t index = 0; index < list.sizes.size(); ++index)
        check(driver.copy_async(list.to[index], list.from[index], list.sizes[index], on.get()),
              "cuMemcpyAsync");
}

bool has_batch() { return load().copy_batch != nullptr; }

void copy_batch(copy_list &list, batch_hints hints, const own_stream &on)
{
    copy_attributes attributes{};
    attributes.source_access_order = hints.stable_source ? order_any : order_of_stream;
    attributes.flags = hints.beside_compute ? prefer_overlap_with_compute : 0;
    size_t first_copy = 0;
    size_t failed = 0;
    check(load().copy_batch(list.to.data(), list.from.data(), list.sizes.data(), list.sizes.size(),
                            &attributes, &first_copy, 1, &failed, on.get()),
          "cuMemcpyBatchAsync");
}

void copy_whole(address to, address from, size_t size, const own_stream &on)
{
    check(load().copy_async(to, from, size, on.get()), "cuMemcpyAsync");
}

} // namespace cuda
