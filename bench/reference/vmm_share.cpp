// SPDX-License-Identifier: Apache-2.0
// The owner creates, maps, sets access and exports. The importer imports, maps, sets access and releases.
#include "reference/vmm_share.hpp"

#include "reference/fd_passing.hpp"

namespace cuda {
namespace {

constexpr int on_device = 1;
constexpr int type_pinned = 1;
constexpr int read_and_write = 3;
constexpr int posix_fd = 1;

memory_handle create(int device, uint64_t size)
{
    memory_properties properties{};
    properties.type = type_pinned;
    properties.handle_types = posix_fd;
    properties.where = {on_device, device};
    memory_handle handle = 0;
    check(load().memory_create(&handle, size, &properties, 0), "cuMemCreate");
    return handle;
}

memory_handle import(int fd)
{
    memory_handle handle = 0;
    void *shared = reinterpret_cast<void *>(static_cast<uintptr_t>(fd)); // by value
    check(load().memory_import(&handle, shared, posix_fd), "cuMemImportFromShareableHandle");
    return handle;
}

} // namespace

extents::extents(int device, uint64_t count, uint64_t size) : size_(size), owner_(true)
{
    for (uint64_t index = 0; index < count; ++index)
        handles_.push_back(create(device, size));
    map(device);
}

extents::extents(int device, const std::vector<int> &fds, uint64_t size) : size_(size), owner_(false)
{
    for (int fd : fds)
        handles_.push_back(import(fd));
    reference::close_all(fds);
    map(device);
    for (memory_handle handle : handles_) // the mappings keep the memory
        check(load().memory_release(handle), "cuMemRelease");
}

void extents::map(int device)
{
    check(load().address_reserve(&base_, size_ * handles_.size(), size_, 0, 0), "cuMemAddressReserve");
    for (size_t index = 0; index < handles_.size(); ++index)
        check(load().memory_map(base_ + index * size_, size_, 0, handles_[index], 0), "cuMemMap");
    const memory_access access = {{on_device, device}, read_and_write};
    check(load().memory_set_access(base_, size_ * handles_.size(), &access, 1), "cuMemSetAccess");
}

extents::~extents()
{
    for (size_t index = 0; index < handles_.size(); ++index) {
        load().memory_unmap(base_ + index * size_, size_);
        if (owner_)
            load().memory_release(handles_[index]);
    }
    load().address_free(base_, size_ * handles_.size());
}

std::vector<int> extents::export_fds() const
{
    std::vector<int> fds;
    for (memory_handle handle : handles_) {
        int fd = -1;
        check(load().memory_export(&fd, handle, posix_fd, 0), "cuMemExportToShareableHandle");
        fds.push_back(fd);
    }
    return fds;
}

} // namespace cuda
