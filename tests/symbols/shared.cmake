# The shared library exports what flashattn.h declares and cmake/flashattn.map lists, and nothing else.
include("${CMAKE_CURRENT_LIST_DIR}/../consumer/common.cmake")

shared_library("${PREFIX}" library)
run("${NM}" -D --defined-only "${library}")
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(exported "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^.* ([^ ]+)$" "\\1" symbol "${line}")
  list(APPEND exported "${symbol}")
endforeach()
list(SORT exported)

file(READ "${SOURCE_DIR}/cmake/flashattn.map" map)
string(REGEX MATCHALL "fa_[a-z0-9_]+" listed "${map}")
list(SORT listed)

file(READ "${SOURCE_DIR}/include/flashattn/flashattn.h" header)
string(REGEX MATCHALL "\nFA_API [^(;]*fa_[a-z0-9_]+\\(" declared "${header}")
list(TRANSFORM declared REPLACE "^.*(fa_[a-z0-9_]+)\\($" "\\1")
list(SORT declared)

if(NOT exported STREQUAL listed)
  message(SEND_ERROR "${library} exports:\n  ${exported}\ncmake/flashattn.map lists:\n  ${listed}")
endif()
if(NOT declared STREQUAL listed)
  message(SEND_ERROR "flashattn.h declares:\n  ${declared}\ncmake/flashattn.map lists:\n  ${listed}")
endif()
