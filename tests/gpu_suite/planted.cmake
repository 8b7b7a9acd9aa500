# bench/gpu_suite.sh on test programs made for it: a stage in several processes passes and fails by what all of them said
# together. Stages are run as the script runs them itself, without a device.
#   cmake -DSOURCE_DIR=. -DWORK_DIR=dir -DBASH=bash -P planted.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND "${BASH}" -c "((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501))" RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(STATUS "skipped: ${BASH} is older than 5.1, whose wait -p the script needs")
  return()
endif()

set(executable PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(programs "${WORK_DIR}/build/tests")
set(said "${WORK_DIR}/said")
file(REMOVE_RECURSE "${WORK_DIR}")

# Each shard says what lies in said/<program>[_<class>].<shard>, or that a kernel ran, and ends with the status that lies
# in said/<program>[_<class>].status; all leave their words in calls.
set(program [[#!/bin/sh
pass=$(basename "$0")${FLASHATTN_MAX_SMEM:+_$FLASHATTN_MAX_SMEM}
case "$*" in *--gtest_list_tests*) exit 0 ;; esac
echo "$pass problems=$FLASHATTN_TEST_PROBLEMS random=$FLASHATTN_TEST_RANDOM_LONG ${FLASHATTN_TEST_SOAK:+soak=$FLASHATTN_TEST_SOAK }$*" >>"$SAID/calls"
if [ -e "$SAID/$pass.$GTEST_SHARD_INDEX" ]; then
  cat "$SAID/$pass.$GTEST_SHARD_INDEX"
else
  printf '[       OK ] a (1 ms)\nTALLY Cases kernel ran 1 rejected 0\n'
fi
echo '[  PASSED  ] 1 test.'
if [ -e "$SAID/$pass.status" ]; then exit "$(cat "$SAID/$pass.status")"; fi
]])
foreach(name host_test forward_test backward_test soak_test)
  file(WRITE "${programs}/${name}" "${program}")
  file(CHMOD "${programs}/${name}" ${executable})
endforeach()

# Runs the program; its errors are what lies in said/<program>_<tool>, or none.
file(WRITE "${WORK_DIR}/bin/compute-sanitizer" [[#!/bin/sh
if [ "$1" = --version ]; then exit 0; fi
tool=$2
shift 4
echo "$tool" >>"$SAID/calls"
"$@"
if [ -e "$SAID/$(basename "$1")_$tool" ]; then
  cat "$SAID/$(basename "$1")_$tool"
  exit 9
elif [ "$tool" = racecheck ]; then
  echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'
else
  echo '========= ERROR SUMMARY: 0 errors'
fi
]])
file(CHMOD "${WORK_DIR}/bin/compute-sanitizer" ${executable})

# say(file text): what one shard, or one tool, has to say in the next stage.
function(say file text)
  file(WRITE "${said}/${file}" "${text}\n")
endfunction()

# expect(name stage status text ...): the stage's status; each text is in what it counted or printed, in this order.
function(expect name stage status)
  file(REMOVE_RECURSE "${WORK_DIR}/stage")
  file(MAKE_DIRECTORY "${WORK_DIR}/stage" "${said}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "PATH=${WORK_DIR}/bin:$ENV{PATH}" "SAID=${said}" "BUILD=${WORK_DIR}/build"
            "OUT=${WORK_DIR}/stage" "WORK=${WORK_DIR}/stage" SHARDS=2 BENCH_ARGS= --unset=FLASHATTN_MAX_SMEM
            --unset=FLASHATTN_TEST_PROBLEMS --unset=FLASHATTN_TEST_RANDOM_LONG --unset=FLASHATTN_TEST_SOAK --unset=GTEST_SHARD_INDEX
            --unset=GTEST_TOTAL_SHARDS "${BASH}" "${SOURCE_DIR}/bench/gpu_suite.sh" __stage ${stage}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(count "")
  if(EXISTS "${WORK_DIR}/stage/count")
    file(READ "${WORK_DIR}/stage/count" count)
  endif()
  set(calls "")
  if(EXISTS "${said}/calls")
    file(READ "${said}/calls" calls)
  endif()
  if(NOT code EQUAL status)
    message(SEND_ERROR "${name}: status ${code}, should be ${status}:\n${count}${output}")
  endif()
  set(rest "${count}${calls}")
  foreach(text IN LISTS ARGN)
    string(FIND "${rest}" "${text}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "${name}: '${text}' is not in, or not in its place in:\n${count}${calls}")
    else()
      string(SUBSTRING "${rest}" ${at} -1 rest)
    endif()
  endforeach()
  file(REMOVE_RECURSE "${said}")
endfunction()

# ---- shards ----

# The longest passes start first; rows that the class cannot change are left out of the smaller classes.
expect(clean tests 0 "forward 4 passed, 0 skipped, 0 failed" "backward 4 passed"
       "forward_test problems=${SOURCE_DIR}/tests/forward/problems.txt random= --gtest_filter=*/V?_*:*/device*"
       "backward_test problems=${SOURCE_DIR}/tests/backward/problems.txt" "forward_test_101376 problems="
       ":-*/V0_*:*/V3_*:*/V4_*:*/V5_*:*/V6_*" "backward_test_166912 problems=" "host_test problems=")

say(forward_test.0 "TALLY Cases v0_unfused ran 0 rejected 259")
say(forward_test.1 "TALLY Cases v0_unfused ran 12 rejected 0")
expect(one_shard_met_rejections_alone tests 0 "forward 4 passed, 0 skipped, 0 failed")

say(forward_test.0 "TALLY Cases v0_unfused ran 0 rejected 30\nTALLY Cases v1_flash1 ran 1 rejected 30")
say(forward_test.1 "TALLY Cases v0_unfused ran 0 rejected 20\nTALLY Cases v1_flash1 ran 0 rejected 20")
expect(all_rejected tests 1 "failed (Cases: v0_unfused rejected all of 50 calls)" "backward 4 passed")

say(forward_test.0 "TALLY Cases v0_unfused ran 0 rejected 30")
say(forward_test.1 "TALLY Cases v0_unfused ran 0 rejected 19")
expect(few_calls tests 0)

# What a kernel ran in another suite, or in another pass, does not count.
say(forward_test.0 "TALLY Cases v0_unfused ran 5 rejected 0\nTALLY Random v0_unfused ran 0 rejected 60")
expect(another_suite tests 1 "(Random: v0_unfused rejected all of 60 calls)")

say(backward_test.3 "TALLY BackwardCases v2_backward_fp32 ran 5 rejected 0")
say(backward_test_101376.1 "TALLY BackwardCases v2_backward_fp32 ran 0 rejected 60")
expect(another_pass tests 1 "backward_in_101376 2 passed, 0 skipped, 0 failed (BackwardCases: v2_backward_fp32 rejected all of 60")

foreach(shard RANGE 3)
  say(backward_test.${shard} "silent")
endforeach()
expect(silent_shards tests 1 "backward 4 passed, 0 skipped, 0 failed (no shard says what its rows rejected)")

expect(random random 0 "forward 4 passed" "backward 4 passed" "forward_test problems= random=2000"
       "backward_test problems= random=1000 --gtest_filter=*/BackwardManyRandom.*/V?_*")

say(soak_test. "SOAK V8_fp16 calls 200000\nSOAK V8_bf16 calls 200000")
expect(soak soak 0 "soak 1 passed, 0 skipped, 0 failed; V8_fp16 200000 calls, V8_bf16 200000 calls"
       "soak_test problems= random= soak=200000 --gtest_filter=*/Soak.TwoStreamsGiveTheSameBits/V8_*")

expect(silent_soak soak 1 "soak 1 passed, 0 skipped, 0 failed; no row says how many calls it made")

say(soak_test. "SOAK V8_bf16 calls 200000\n[  FAILED  ] 1 test, listed below:")
say(soak_test.status 1)
expect(a_soak_that_differs soak 1 "soak 1 passed, 0 skipped, 1 failed; V8_bf16 200000 calls")

# ---- compute-sanitizer ----

expect(sanitizer sanitizer 0 "forward memcheck clean (1 tests" "forward initcheck clean" "backward memcheck clean"
       "backward racecheck clean" "backward synccheck clean" "backward initcheck clean"
       "memcheck\nforward_test problems=${SOURCE_DIR}/tests/forward/sanitize_problems.txt random= --gtest_filter=*Problems.*/V?_* --no-guards"
       "initcheck\nforward_test problems=${SOURCE_DIR}/tests/forward/sanitize_problems.txt random= --gtest_filter=*Problems.*/V?_*:-*_gaps:*/V8_* --no-prefill"
       "memcheck\nbackward_test problems=${SOURCE_DIR}/tests/backward/sanitize_problems.txt random= --gtest_filter=*Problems.*/V?_* --no-guards")

say(backward_test_racecheck "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")
expect(a_hazard sanitizer 1 "forward racecheck clean" "backward memcheck clean"
       "backward racecheck FAILED (status 9, 1 tests, RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings))"
       "backward synccheck clean")
