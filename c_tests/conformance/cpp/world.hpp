// SPDX-License-Identifier: Apache-2.0
// The objects of a case.
#pragma once

#include "step.hpp"

#include <condition_variable>
#include <kvmem.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <variant>

// Memory of the runner that kvmem adopted.
struct Adopted {
    explicit Adopted(std::size_t size);
    ~Adopted();
    Adopted(const Adopted &) = delete;
    Adopted &operator=(const Adopted &) = delete;

    void release();
    void await_release();

    void *address;

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool released_ = false;
};

using Object = std::variant<kvmem::Region, kvmem::Layout, kvmem::Transfer, kvmem::Queue, kvmem::Share, kvmem::Broker,
                            kvmem::Agent, kvmem::Registration, kvmem::Store, kvmem::Lease>;

class World {
public:
    World();
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // A path of the table: "@name" is in the folder of the case.
    std::string path(const std::string &text) const;
    // A path that kvmem returned, as tables write it.
    std::string shown(const std::string &path) const;

    void add(const std::string &name, Object object);
    void require_free(const std::string &name) const;
    void destroy(const std::string &name);

    template <typename T>
    T &get(const std::string &name) {
        const auto found = objects_.find(name);
        if (found == objects_.end()) throw Failure("there is no object " + name);
        T *const object = std::get_if<T>(&found->second);
        if (!object) throw Failure(name + " is an object of another type");
        return *object;
    }

    std::map<std::string, std::shared_ptr<Adopted>> adopted;
    std::map<std::string, kvmem::Token> tokens;
    // Bytes by name, such as metadata.
    std::map<std::string, std::vector<std::byte>> bytes;

private:
    std::string folder_;
    std::map<std::string, Object> objects_;
    std::vector<std::string> order_;
};

// Runs a step. The results are compared with what the step expects.
Results run_step(const Step &step, World &world);
