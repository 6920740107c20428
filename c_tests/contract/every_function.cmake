# SPDX-License-Identifier: Apache-2.0
# Fails if the tests of a folder do not call each function of the headers, so that tests of a new function cannot be
# forgotten. cmake -DHEADERS_DIRECTORY=include -DSOURCES_DIRECTORY=contract [-DSOURCES=*_test.c] -P
# every_function.cmake

# The text of a C file without its comments.
function(read_code path result)
    file(READ "${path}" code)
    string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " code "${code}")
    string(REGEX REPLACE "//[^\n]*" " " code "${code}")
    set(${result} "${code}" PARENT_SCOPE)
endfunction()

file(GLOB headers "${HEADERS_DIRECTORY}/kvmem*.h")
set(functions "")
foreach(header IN LISTS headers)
    read_code("${header}" code)
    string(REGEX MATCHALL "kvmem_[a-z0-9_]+[ \n]*\\(" declared "${code}")
    list(APPEND functions ${declared})
endforeach()
list(TRANSFORM functions REPLACE "[ \n]*\\($" "")
list(REMOVE_DUPLICATES functions)
list(LENGTH functions count)
if(count LESS 50)
    message(FATAL_ERROR "only ${count} functions found in ${HEADERS_DIRECTORY}: are the headers there?")
endif()

if(NOT SOURCES)
    set(SOURCES "*_test.c")
endif()
file(GLOB sources "${SOURCES_DIRECTORY}/${SOURCES}")
set(tests "")
foreach(source IN LISTS sources)
    read_code("${source}" code)
    string(APPEND tests "${code}")
endforeach()

set(forgotten "")
foreach(function IN LISTS functions)
    if(NOT tests MATCHES "[^a-z0-9_]${function}[,()]")
        list(APPEND forgotten "${function}")
    endif()
endforeach()
if(forgotten)
    list(JOIN forgotten ", " names)
    message(FATAL_ERROR "no file of ${SOURCES_DIRECTORY} calls ${names}")
endif()
message(STATUS "all ${count} functions are called in ${SOURCES_DIRECTORY}")
