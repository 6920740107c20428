// SPDX-License-Identifier: Apache-2.0
// Creates the folder of a case, and destroys its objects in reverse order.
#include "world.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace {

constexpr std::size_t page = 4096;

}  // namespace

Adopted::Adopted(std::size_t size) : address(std::aligned_alloc(page, (size + page - 1) / page * page)) {
    if (!address) throw std::bad_alloc();
    std::memset(address, 0, (size + page - 1) / page * page);
}

Adopted::~Adopted() {
    std::free(address);
}

void Adopted::release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
}

void Adopted::await_release() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return released_; });
}

World::World() : folder_((std::filesystem::temp_directory_path() / "kvmem-conformance-XXXXXX").string()) {
    if (!mkdtemp(folder_.data())) throw Failure("no folder " + folder_ + " could be created");
}

World::~World() {
    while (!order_.empty()) destroy(std::string(order_.back()));
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

std::string World::path(const std::string &text) const {
    return text[0] == '@' ? folder_ + "/" + text.substr(1) : text;
}

std::string World::shown(const std::string &path) const {
    return path.rfind(folder_ + "/", 0) == 0 ? "@" + path.substr(folder_.size() + 1) : path;
}

void World::require_free(const std::string &name) const {
    if (objects_.count(name) != 0) throw Failure("there is an object " + name + " already");
}

void World::add(const std::string &name, Object object) {
    objects_.emplace(name, std::move(object));
    order_.push_back(name);
}

void World::destroy(const std::string &name) {
    if (objects_.erase(name) == 0) throw Failure("there is no object " + name);
    order_.erase(std::find(order_.begin(), order_.end(), name));
}
