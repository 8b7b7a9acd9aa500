# The checker of the ptxas logs, on logs made for it.
cmake_minimum_required(VERSION 3.25)

set(clean [[ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6kernelPf' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
]])
string(REPLACE "0 bytes spill stores" "24 bytes spill stores" spill "${clean}")
set(serialized "${clean}ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function '_Z6kernelPf'\n")

# expect(name, log text or "", allowed text, text of the failure or "")
function(expect name log allowed text)
  set(directory "${WORK_DIR}/${name}")
  file(REMOVE_RECURSE "${directory}")
  file(WRITE "${directory}/a.cu.o" "")
  if(log)
    file(WRITE "${directory}/a.cu.o.ptxas.log" "${log}")
  endif()
  file(WRITE "${directory}/allowed.txt" "${allowed}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" "-DBUILD_DIR=${directory}" "-DALLOWED=${directory}/allowed.txt" -P
            "${CMAKE_CURRENT_LIST_DIR}/check.cmake"
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(text STREQUAL "" AND NOT code EQUAL 0)
    message(SEND_ERROR "${name}: should pass, but:\n${output}")
  elseif(NOT text STREQUAL "" AND code EQUAL 0)
    message(SEND_ERROR "${name}: should fail, but passed")
  elseif(NOT output MATCHES "${text}")
    message(SEND_ERROR "${name}: '${text}' is not in:\n${output}")
  endif()
endfunction()

expect(clean "${clean}" "" "")
expect(spill "${spill}" "" "_Z6kernelPf spills")
expect(spill_of_another "${spill}" "other_kernel  why\n" "_Z6kernelPf spills")
expect(spill_allowed "${spill}" "# a comment\nkernelPf  the accumulator does not fit at D 256\n" "")
expect(spill_without_reason "${spill}" "kernelPf\n" "gives no reason")
expect(serialized "${serialized}" "" "wgmma is serialised")
expect(missing "" "" "has no ptxas log")
file(MAKE_DIRECTORY "${WORK_DIR}/empty")
file(WRITE "${WORK_DIR}/empty_allowed.txt" "")
execute_process(
  COMMAND "${CMAKE_COMMAND}" "-DBUILD_DIR=${WORK_DIR}/empty" "-DALLOWED=${WORK_DIR}/empty_allowed.txt" -P
          "${CMAKE_CURRENT_LIST_DIR}/check.cmake"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(code EQUAL 0 OR NOT output MATCHES "no ptxas log under")
  message(SEND_ERROR "a build without logs should fail:\n${output}")
endif()
