# ncu_json.awk on a made-up raw page of two kernels: units, quoted commas, missing numbers, sums. source_json.awk on a
# made-up source page of two kernels.
cmake_minimum_required(VERSION 3.25)

string(JOIN " " aliases
       duration_s=gpu__time_duration.sum
       registers_per_thread=launch__registers_per_thread
       dynamic_shared=launch__shared_mem_per_block_dynamic
       dram_write_bytes=dram__bytes_write.sum
       shared_load_conflicts=l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum
       shared_load_wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
       fma_pipe_pct=sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active|sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active
       absent=no__such_metric)
execute_process(
  COMMAND awk -v "aliases=${aliases}" -f "${CMAKE_CURRENT_LIST_DIR}/../csv.awk" -f
          "${CMAKE_CURRENT_LIST_DIR}/../ncu_json.awk" "${CMAKE_CURRENT_LIST_DIR}/raw.csv"
  OUTPUT_VARIABLE body RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "ncu_json.awk ended with ${status}")
endif()
set(json "{${body}}")

# expect(value key ...)
function(expect value)
  string(JSON got GET "${json}" ${ARGN})
  if(NOT got STREQUAL value)
    message(FATAL_ERROR "${ARGN} is '${got}', not '${value}', in\n${json}")
  endif()
endfunction()
# absent(key ...)
function(absent)
  string(JSON got ERROR_VARIABLE error GET "${json}" ${ARGN})
  if(NOT error)
    message(FATAL_ERROR "${ARGN} is '${got}' and should not be there, in\n${json}")
  endif()
endfunction()

expect(2 sum kernels)
expect(1610612736 sum dram_write_bytes)
expect("(12288, 1, 1)" per_kernel 0 grid)
expect("fa::internal::v0::softmax_kernel<fa::internal::v0::Config, (int)4>(fa::internal::ForwardParams)" per_kernel 1
       kernel)
expect(128 per_kernel 0 registers_per_thread)
expect(16500 per_kernel 1 dynamic_shared)
string(JSON seconds GET "${json}" sum duration_s)
if(NOT seconds MATCHES "^0\\.0016")
  message(FATAL_ERROR "1,200,000 ns and 400,000 ns make ${seconds} s")
endif()
string(JSON ratio GET "${json}" per_kernel 0 shared_load_conflicts_per_wavefront)
if(NOT ratio MATCHES "^0\\.1")
  message(FATAL_ERROR "100 conflicts in 1,000 wavefronts make ${ratio}")
endif()
string(JSON fma GET "${json}" per_kernel 0 fma_pipe_pct)  # n/a in the first of its two names
if(NOT fma MATCHES "^61\\.5")
  message(FATAL_ERROR "fma_pipe_pct is ${fma}")
endif()
absent(per_kernel 1 fma_pipe_pct)
absent(per_kernel 1 shared_load_conflicts_per_wavefront)
absent(per_kernel 0 absent)
absent(sum registers_per_thread)

file(WRITE "${WORK_DIR}/empty.csv" "==ERROR== nothing was profiled\n")
execute_process(
  COMMAND awk -v "aliases=${aliases}" -f "${CMAKE_CURRENT_LIST_DIR}/../csv.awk" -f
          "${CMAKE_CURRENT_LIST_DIR}/../ncu_json.awk" "${WORK_DIR}/empty.csv"
  OUTPUT_VARIABLE body RESULT_VARIABLE status)
if(status EQUAL 0)
  message(FATAL_ERROR "a page without kernels passed")
endif()

execute_process(
  COMMAND awk -f "${CMAKE_CURRENT_LIST_DIR}/../csv.awk" -f "${CMAKE_CURRENT_LIST_DIR}/../source_json.awk"
          "${CMAKE_CURRENT_LIST_DIR}/source.csv"
  OUTPUT_VARIABLE body RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "source_json.awk ended with ${status}")
endif()
set(json "{${body}}")
expect(4 shared_loads instructions)
expect(1610 shared_loads executed)
expect(3000 shared_loads wavefronts)
expect(2500 shared_loads least_wavefronts)
expect(128 shared_stores wavefronts)
expect(0.5 shared_stores excess_per_wavefront)
execute_process(
  COMMAND awk -f "${CMAKE_CURRENT_LIST_DIR}/../csv.awk" -f "${CMAKE_CURRENT_LIST_DIR}/../source_json.awk"
          "${CMAKE_CURRENT_LIST_DIR}/raw.csv"
  OUTPUT_VARIABLE body RESULT_VARIABLE status)
if(status EQUAL 0)
  message(FATAL_ERROR "a page without the columns of shared memory passed")
endif()
