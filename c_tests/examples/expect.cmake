# SPDX-License-Identifier: Apache-2.0
# Runs the command after `--`. Fails unless it exits with EXIT_CODE and what it prints on stderr, then on stdout, matches
# TEXT. The two are read apart: in one variable, a piece of one can be within a line of the other.
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 1 ${last})
    if(separated)
        list(APPEND command "${CMAKE_ARGV${i}}")
    elseif(CMAKE_ARGV${i} STREQUAL "--")
        set(separated TRUE)
    endif()
endforeach()

execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE errors)
string(PREPEND out "${errors}")
message("${out}")
if(NOT code STREQUAL EXIT_CODE)
    message(FATAL_ERROR "it ended with '${code}', not with ${EXIT_CODE}")
endif()
if(NOT out MATCHES "${TEXT}")
    message(FATAL_ERROR "nothing that it printed matches: ${TEXT}")
endif()
