# CASE.cpp does not compile, and the compiler's message has the text after `// expected:` in it. With CORRECT
# defined the same file does compile: nothing but the fault makes it fail.
cmake_minimum_required(VERSION 3.25)

set(file "${CMAKE_CURRENT_LIST_DIR}/${CASE}.cpp")
set(command "${CXX}" -std=c++17 -fsyntax-only "-I${SOURCE_DIR}/include")

execute_process(COMMAND ${command} -DCORRECT "${file}" RESULT_VARIABLE code ERROR_VARIABLE output)
if(NOT code EQUAL 0)
  message(SEND_ERROR "${CASE} with -DCORRECT should compile:\n${output}")
endif()

execute_process(COMMAND ${command} "${file}" RESULT_VARIABLE code ERROR_VARIABLE output)
if(code EQUAL 0)
  message(SEND_ERROR "${CASE} should not compile")
endif()
# Compilers write fa::Version::V5, fa::v0_1::Version::V5 or a cast of the number; the inline namespace goes.
string(REGEX REPLACE "v[0-9]+_[0-9]+::" "" output "${output}")
file(STRINGS "${file}" expectations REGEX "^// expected: ")
if(NOT expectations)
  message(SEND_ERROR "${CASE}.cpp expects nothing")
endif()
foreach(line IN LISTS expectations)
  string(REGEX REPLACE "^// expected: " "" text "${line}")
  string(FIND "${output}" "${text}" position)
  if(position EQUAL -1)
    message(SEND_ERROR "${CASE}: '${text}' is not in:\n${output}")
  endif()
endforeach()
