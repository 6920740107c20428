// SPDX-License-Identifier: Apache-2.0
// kvmem's C handles as C++ values: owned, moved, destroyed once; a failed call throws what the library said.
#pragma once

#include <kvmem.h>
#include <kvmem_nixl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kv {

template <auto destroy>
struct Destroy {
    template <typename T>
    void operator()(T *handle) const { destroy(handle); }
};

using Agent = std::unique_ptr<kvmem_agent, Destroy<kvmem_agent_destroy>>;
using Blob = std::unique_ptr<kvmem_blob, Destroy<kvmem_blob_destroy>>;
using Layout = std::unique_ptr<kvmem_layout, Destroy<kvmem_layout_destroy>>;
using Notifications = std::unique_ptr<kvmem_notifications, Destroy<kvmem_notifications_destroy>>;
using Region = std::unique_ptr<kvmem_region, Destroy<kvmem_region_destroy>>;
using Share = std::unique_ptr<kvmem_share, Destroy<kvmem_share_destroy>>;
using Transfer = std::unique_ptr<kvmem_transfer, Destroy<kvmem_transfer_destroy>>;

// What the library answered: its status, and its sentence with the status's name in front.
class Error : public std::runtime_error {
public:
    Error(kvmem_status status, const kvmem_error *error)
        : std::runtime_error(std::string(kvmem_status_name(status)) + ": " +
                             kvmem_error_message(error, nullptr)),
          status_(status) {}

    kvmem_status status() const { return status_; }

private:
    kvmem_status status_;
};

// Calls any fallible function of kvmem: adds the error slot, and throws when the status is negative.
template <typename Function, typename... Arguments>
kvmem_status call(Function function, Arguments... arguments) {
    kvmem_error *raw = nullptr;
    const kvmem_status status = function(arguments..., &raw);
    const std::unique_ptr<kvmem_error, Destroy<kvmem_error_destroy>> error(raw);
    if (status < 0) throw Error(status, error.get());
    return status;
}

// The same for a function whose last output is a handle: `make<Agent>(kvmem_agent_create, name, &options)`.
template <typename Handle, typename Function, typename... Arguments>
Handle make(Function function, Arguments... arguments) {
    typename Handle::pointer raw = nullptr;
    call(function, arguments..., &raw);
    return Handle(raw);
}

// The same for a function that fills a plain struct: `get<kvmem_layout_info>(kvmem_layout_get_info, layout)`.
template <typename Struct, typename Function, typename... Arguments>
Struct get(Function function, Arguments... arguments) {
    Struct result{};
    call(function, arguments..., &result);
    return result;
}

// Options with their defaults: `auto options = defaults(kvmem_agent_options_init);`
template <typename Options>
Options defaults(void (*init)(Options *, size_t)) {
    Options options;
    init(&options, sizeof options);
    return options;
}

inline std::string_view bytes(const Blob &blob) {
    return {static_cast<const char *>(kvmem_blob_data(blob.get())), kvmem_blob_size(blob.get())};
}

}  // namespace kv
