// SPDX-License-Identifier: Apache-2.0
/// kvmem for C++17 and later: the whole C interface as classes. Header-only; link libkvmem as for C.
///
/// kvmem::Region, Layout, Transfer and the other handles are move-only and own one C handle each. A C
/// function kvmem_region_sync(region, ..., error) is region.sync(...); kvmem_region_create_view is
/// region.create_view(...) or a static function of the class that it creates. Options are structs whose
/// fields have the names and the defaults of the C structs. The headers of C describe each function; the
/// comments here say only what differs.
///
/// A call that fails throws kvmem::Error. Define KVMEM_RESULTS before the include, or compile without
/// exceptions, to get kvmem::Result<T> instead. docs/cpp.md has examples.
#ifndef KVMEM_HPP
#define KVMEM_HPP

#include "kvmem/broker.hpp"
#include "kvmem/common.hpp"
#include "kvmem/cuda.hpp"
#include "kvmem/descriptors.hpp"
#include "kvmem/directory.hpp"
#include "kvmem/layout.hpp"
#include "kvmem/log.hpp"
#include "kvmem/nixl.hpp"
#include "kvmem/queue.hpp"
#include "kvmem/region.hpp"
#include "kvmem/request.hpp"
#include "kvmem/result.hpp"
#include "kvmem/share.hpp"
#include "kvmem/statistics.hpp"
#include "kvmem/store.hpp"
#include "kvmem/transfer.hpp"
#include "kvmem/vmm.hpp"

#endif
