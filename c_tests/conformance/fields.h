/* SPDX-License-Identifier: Apache-2.0 */
/* For the runners in C and C++: fields with the names of keys. */
#ifndef FIELDS_H
#define FIELDS_H

/* Sets the numbers of a shape, and of what a transfer selects, by the SET of the runner. */
#define SET_SHAPE(config)                                                                                 \
    SET(config, num_blocks), SET(config, num_layers), SET(config, outer_dim), SET(config, page_size),     \
        SET(config, inner_dim), SET(config, dtype_width), SET(config, alignment), SET(config, num_heads), \
        SET(config, block_stride), SET(config, layer_stride), SET(config, outer_stride),                  \
        SET(config, token_stride), SET(config, head_stride), SET(config, element_stride)
#define SET_SELECTION(options)                                                                            \
    SET(options, source_layer), SET(options, destination_layer), SET(options, num_layers),                \
        SET(options, source_outer), SET(options, destination_outer), SET(options, num_outers),            \
        SET(options, source_head), SET(options, destination_head), SET(options, num_heads)

#endif
