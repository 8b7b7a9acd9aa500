# plot.cmake on made-up results: which plots it makes, and what it plots.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK_DIR}")
set(here "${CMAKE_CURRENT_LIST_DIR}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" "-DRESULT=${here}/bench.json" "-DPROFILE=${here}/profile.json" "-DOUT=${WORK_DIR}"
          "-DGNUPLOT=${GNUPLOT}" -P "${here}/../plot.cmake"
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "plot.cmake ended with ${status}:\n${output}${errors}")
endif()

file(GLOB images RELATIVE "${WORK_DIR}" "${WORK_DIR}/*.svg")
set(expected roofline_b4_h12_m2048_n2048_d64.svg tflops_fp32_b4_h12_d64.svg time_fp32_b4_h12_d64.svg)
if(NOT images STREQUAL expected)
  message(FATAL_ERROR "plots: ${images}\nexpected: ${expected}")
endif()

# Rungs and baselines by the graph clock, lengths in order; neither skipped rows nor self.
file(READ "${WORK_DIR}/data/fp32_b4_h12_d64.dat" data)
string(REGEX MATCHALL "# [A-Za-z0-9_/]+:" labels "${data}")
if(NOT labels STREQUAL "# V0:;# V1:;# V2:;# cublas_softmax:")
  message(FATAL_ERROR "rows plotted: ${labels}")
endif()
string(REGEX MATCHALL "\n[0-9]+ " lengths "${data}")
string(REPLACE "\n" "" lengths "${lengths}")
if(NOT lengths MATCHES "^512 ;1024 ;2048 ;512 ")
  message(FATAL_ERROR "lengths: ${lengths}")
endif()

file(READ "${WORK_DIR}/data/roofline_b4_h12_m2048_n2048_d64.dat" data)
if(NOT data MATCHES "\"V2 fp32\" 51539607552 75000000 25000000 0\\.03435[0-9]* 50")
  message(FATAL_ERROR "the roofline's points:\n${data}")
endif()
