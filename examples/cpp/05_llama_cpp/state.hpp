// SPDX-License-Identifier: Apache-2.0
// The state of a sequence in the form of llama_state_seq_set_data, without keys, values and recurrent states.
#pragma once

#include "engine.hpp"

// Makes llama.cpp allocate cells for the positions of a sequence. Returns them, group by group, in the order of the
// positions.
std::vector<CellIds> place_sequence(const llama_model *model, llama_context *context, const std::vector<CacheGroup> &groups,
                                    llama_seq_id sequence, const Positions &positions);
