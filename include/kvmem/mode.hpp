// SPDX-License-Identifier: Apache-2.0
/// The namespaces of the headers for C++.
#ifndef KVMEM_MODE_HPP
#define KVMEM_MODE_HPP

#if defined(__cpp_exceptions)
#define KVMEM_HPP_EXCEPTIONS 1
#else
#define KVMEM_HPP_EXCEPTIONS 0
#endif

// Files of one program may be compiled with and without exceptions, with and without KVMEM_RESULTS, as C++17
// and as C++20, where kvmem::span is std::span. The types then differ, so they are in different namespaces.
#if !KVMEM_HPP_EXCEPTIONS
#define KVMEM_HPP_MODE without_exceptions
#elif defined(KVMEM_RESULTS)
#define KVMEM_HPP_MODE results
#else
#define KVMEM_HPP_MODE throwing
#endif
#if defined(_MSVC_LANG) ? _MSVC_LANG >= 202002L : __cplusplus >= 202002L
#define KVMEM_HPP_STANDARD cpp20
#else
#define KVMEM_HPP_STANDARD cpp17
#endif
#define KVMEM_HPP_BEGIN                                 \
    namespace kvmem {                                   \
    inline namespace KVMEM_HPP_STANDARD {               \
    inline namespace KVMEM_HPP_MODE {
#define KVMEM_HPP_END \
    }                 \
    }                 \
    }

#endif
