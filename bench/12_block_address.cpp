// SPDX-License-Identifier: Apache-2.0
// Row 12: the address of a block, by the caller's own formula, by the strides, and by kvmem_layout_get_block.
#include "common/clock.hpp"
#include "common/kv.hpp"
#include "common/program.hpp"

#include <random>

namespace {

using namespace bench;

constexpr uint64_t blocks = 1024;
constexpr uint64_t layers = 32;
constexpr uint64_t outers = 2;
constexpr uint64_t page = 16;
constexpr uint64_t inner = 128;
constexpr uint64_t width = 2;

struct place {
    uint64_t block;
    uint64_t layer;
    uint64_t outer;
};

std::vector<place> random_places()
{
    std::mt19937 random(12);
    std::vector<place> places(1024);
    for (place &chosen : places)
        chosen = {random() % blocks, random() % layers, random() % outers};
    return places;
}

// Makes the compiler produce each address, as for a caller that uses it. Returns their sum for the comparison.
template <typename Address>
uint64_t sum_addresses(const std::vector<place> &places, const Address &address_of)
{
    uint64_t sum = 0;
    for (const place &wanted : places) {
        uint64_t address = address_of(wanted);
        asm volatile("" : "+r"(address));
        sum += address;
    }
    return sum;
}

// Returns nanoseconds per address. Throws if the addresses differ from those of the library.
template <typename Address>
candidate per_address(const std::vector<place> &places, uint64_t expected_sum, Address address_of)
{
    return [&places, expected_sum, address_of] {
        constexpr int repeats = 50;
        uint64_t wrong = 0;
        const double taken = time_ns([&] {
            for (int repeat = 0; repeat < repeats; ++repeat)
                wrong |= sum_addresses(places, address_of) ^ expected_sum;
        });
        if (wrong != 0)
            throw std::runtime_error("the computed addresses differ from those of the library");
        return taken / static_cast<double>(repeats * places.size());
    };
}

// The formula that an engine would write for its own pool, with its geometry in variables or in constants.
struct run_time_geometry {
    uint64_t layers, outers, size;
};

struct constant_geometry {
    static constexpr uint64_t layers = ::layers;
    static constexpr uint64_t outers = ::outers;
    static constexpr uint64_t size = page * inner * width;
};

kvmem_layout_info strides_of(const kv::layout &layout)
{
    kvmem_layout_info strides{};
    kv::call(kvmem_layout_get_info, layout.get(), &strides);
    return strides;
}

run_time_geometry geometry_of(const kv::layout &layout)
{
    kvmem_layout_info info{};
    kv::call(kvmem_layout_get_info, layout.get(), &info);
    return {info.num_layers, info.outer_dim, info.page_size * info.inner_dim * info.dtype_width};
}

template <typename Geometry> struct contiguous_formula {
    uint64_t base;
    Geometry geometry;
    uint64_t operator()(const place &wanted) const
    {
        const uint64_t row = wanted.block * geometry.layers + wanted.layer;
        return base + (row * geometry.outers + wanted.outer) * geometry.size;
    }
};

template <typename Geometry> struct separate_formula {
    const uint64_t *bases;
    Geometry geometry;
    uint64_t operator()(const place &wanted) const
    {
        return bases[wanted.layer] + (wanted.block * geometry.outers + wanted.outer) * geometry.size;
    }
};

// The formula of the header for a layout of any kind.
struct any_strides {
    kvmem_layout_info strides;
    uint64_t operator()(const place &wanted) const
    {
        return strides.bases[strides.num_regions > 1 ? wanted.layer : 0] + wanted.block * strides.block_stride +
               wanted.layer * strides.layer_stride + wanted.outer * strides.outer_stride;
    }
};

// The formula for a caller that knows the kind of its layout.
struct contiguous_strides {
    kvmem_layout_info strides;
    uint64_t base = strides.bases[0];
    uint64_t operator()(const place &wanted) const
    {
        return base + wanted.block * strides.block_stride + wanted.layer * strides.layer_stride +
               wanted.outer * strides.outer_stride;
    }
};

struct separate_strides {
    kvmem_layout_info strides;
    uint64_t operator()(const place &wanted) const
    {
        return strides.bases[wanted.layer] + wanted.block * strides.block_stride +
               wanted.outer * strides.outer_stride;
    }
};

struct by_call {
    const kvmem_layout *layout;
    uint64_t operator()(const place &wanted) const
    {
        kvmem_block block{};
        kvmem_layout_get_block(layout, wanted.block, wanted.layer, wanted.outer, &block, nullptr);
        return block.address;
    }
};

template <typename Strides, template <typename> typename Formula, typename Base>
void measure_kind(const options &chosen, const char *name, const kv::layout &layout, Base base,
                  results &found)
{
    const std::vector<place> places = random_places();
    const kvmem_layout_info strides = strides_of(layout);
    const uint64_t sum = sum_addresses(places, by_call{layout.get()});
    const std::vector<samples> taken = alternate(chosen.rounds(51), {
        per_address(places, sum, Strides{strides}),
        per_address(places, sum, any_strides{strides}),
        per_address(places, sum, by_call{layout.get()}),
        per_address(places, sum, Formula<run_time_geometry>{base, geometry_of(layout)}),
        per_address(places, sum, Formula<constant_geometry>{base, {}}),
    });
    const char *methods[] = {"strides, kind known", "strides, any kind", "kvmem_layout_get_block"};
    const char *formulas[] = {"formula in C", "formula in C, geometry known to the compiler"};
    for (size_t method = 0; method < 3; ++method)
        for (size_t formula = 0; formula < 2; ++formula)
            found.add({"12-block-address",
                       {{"way", methods[method]}, {"kind", name}},
                       taken[method],
                       formulas[formula],
                       taken[3 + formula],
                       {},
                       "ns"});
}

kv::layout make_pool(const char *order)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = blocks;
    config.num_layers = layers;
    config.outer_dim = outers;
    config.page_size = page;
    config.inner_dim = inner;
    config.dtype_width = width;
    config.order = order;
    return kv::make_layout(config, nullptr, 0);
}

void measure(const options &chosen, results &found)
{
    const kv::layout contiguous = make_pool(KVMEM_ORDER_FULLY_CONTIGUOUS);
    measure_kind<contiguous_strides, contiguous_formula>(chosen, "fully contiguous", contiguous,
                                                         strides_of(contiguous).bases[0], found);
    const kv::layout separate = make_pool(KVMEM_ORDER_LAYER_SEPARATE);
    measure_kind<separate_strides, separate_formula>(chosen, "layer separate", separate,
                                                     strides_of(separate).bases, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
