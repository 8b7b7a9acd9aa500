# Each public header compiles alone, twice included, without a warning: as C++17 with and without CUDA's headers,
# flashattn.h as C99 too.
cmake_minimum_required(VERSION 3.25)

foreach(list HEADERS CUDA_INCLUDE_DIRS)
  string(REPLACE "|" ";" ${list} "${${list}}")
endforeach()
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

# check(header, suffix, compiler and its flags...)
function(check header suffix)
  string(REPLACE "include/" "" name "${header}")
  string(MAKE_C_IDENTIFIER "${name}" file)
  file(WRITE "${WORK_DIR}/${file}.${suffix}" "#include <${name}>\n#include <${name}>\n")
  set(command ${ARGN} ${warnings} -fsyntax-only "-I${SOURCE_DIR}/include" "${WORK_DIR}/${file}.${suffix}")
  execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN command " " command)
    message(SEND_ERROR "${name}: ${command}\n${output}")
  endif()
endfunction()

set(cuda "")
foreach(directory IN LISTS CUDA_INCLUDE_DIRS)
  list(APPEND cuda -isystem "${directory}")
endforeach()

# The list is complete.
file(GLOB present RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/include/flashattn/*")
list(SORT present)
list(SORT HEADERS)
if(NOT present STREQUAL HEADERS)
  message(SEND_ERROR "FLASHATTN_PUBLIC_HEADERS is '${HEADERS}', but the folder holds '${present}'")
endif()

foreach(header IN LISTS HEADERS)
  check("${header}" cpp "${CXX}" -std=c++17 -DFLASHATTN_NO_CUDA_TYPES)
  if(cuda)
    check("${header}" cpp "${CXX}" -std=c++17 ${cuda})
  endif()
  if(header MATCHES "\\.h$")
    check("${header}" c "${CC}" -std=c99)
  endif()
endforeach()
