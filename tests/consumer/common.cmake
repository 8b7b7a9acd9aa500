# What the consumer tests share.
cmake_minimum_required(VERSION 3.25)

string(REPLACE "|" ";" OPTIONS "${OPTIONS}")

# run(command...): runs it, and stops the test with its output where it fails. Leaves `output`.
macro(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGN}\n${output}")
  endif()
endmacro()

# build_consumer(name, directory, options...): an outside project, from nothing.
function(build_consumer name directory)
  file(REMOVE_RECURSE "${directory}")
  run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/tests/consumer/${name}" -B "${directory}" -G "${GENERATOR}"
      -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}" ${ARGN})
  run("${CMAKE_COMMAND}" --build "${directory}")
endfunction()

# expect_ok(command...): the program's answer is right.
function(expect_ok)
  run(${ARGN})
  if(NOT output MATCHES "attention: ok")
    message(FATAL_ERROR "${ARGN} said:\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

# shared_library(prefix, result): the libflashattn.so of an installed prefix.
function(shared_library prefix result)
  file(GLOB_RECURSE found "${prefix}/*/libflashattn.so" "${prefix}/*/libflashattn.dylib")
  list(LENGTH found count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "no shared library under ${prefix}: ${found}")
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
