# SPDX-License-Identifier: Apache-2.0
# Fails unless the index of the header in the README, rows like | `kvmem_noun_` | `verb` `verb` | what |,
# names exactly the functions that the headers declare.
file(GLOB headers "${ROOT}/include/kvmem*.h")
set(header "")
foreach(path IN LISTS headers)
    file(READ "${path}" text)
    string(APPEND header "${text}")
endforeach()
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/|//[^\n]*" "" header "${header}")
string(REGEX MATCHALL "kvmem_[a-z0-9_]+\\(" declared "${header}")
list(TRANSFORM declared REPLACE "\\($" "")
list(REMOVE_DUPLICATES declared)

file(STRINGS "${ROOT}/README.md" rows REGEX "^\\| `kvmem_[a-z_]*` \\|")
foreach(row IN LISTS rows)
    string(REGEX MATCHALL "`[a-z0-9_]+`" words "${row}")
    list(TRANSFORM words REPLACE "`" "")
    list(POP_FRONT words prefix)
    list(TRANSFORM words PREPEND "${prefix}")
    list(APPEND named ${words})
endforeach()

set(missing ${declared})
list(REMOVE_ITEM missing ${named})
set(unknown ${named})
list(REMOVE_ITEM unknown ${declared})
list(LENGTH declared count)
if(missing OR unknown OR count EQUAL 0)
    message(FATAL_ERROR "of ${count} functions in the headers\n"
                        "  not in the index: ${missing}\n"
                        "  only in the index: ${unknown}")
endif()
message(STATUS "the index names all ${count} functions")
