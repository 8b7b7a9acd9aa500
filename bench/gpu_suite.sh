#!/bin/bash
# The whole GPU suite, from programs that are built already:
#
#   bench/gpu_suite.sh BUILD_DIR [stage ...] [--out DIR] [--shards N] [--bench-args 'words']
#
#   tests      the tests that run on a device, N processes at a time (default 8), and the tiles of the smaller classes of
#              shared memory (FLASHATTN_MAX_SMEM) and of a device of 3 multiprocessors (FLASHATTN_MAX_MULTIPROCESSORS)
#   random     2,000 random problems by every forward row of 16 bits from V7 on, 500 by V8 on 3 multiprocessors, and 1,000
#              by every backward row, N processes at a time
#   soak       200,000 calls over two streams by each row of V8, in one process: each result is compared on the device,
#              bit by bit, with the problem's first one, which the oracle checks
#   sanitizer  compute-sanitizer's four tools over tests/forward/sanitize_problems.txt and tests/backward's
#   accuracy   accuracy_attention: every row against fp64
#   bench      bench_attention on the device; --bench-args adds to its command line (--full, --problems ...)
#   profile    Nsight Compute over every rung
#
# No stage named: all of them, in this order. Each ends within 8 minutes or is ended. Results go to DIR (default
# bench/results/<date>-<gpu>): summary.txt, accuracy.json, bench.json, profile.json, and what the stages printed in
# suite.log. The last lines say of each stage: pass, fail or skip, seconds, and what was counted. Exit status: 0; 1
# where a stage failed or could not run; 2 for a bad command line.
# shellcheck disable=SC2317,SC2329  # the stages are called by name
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$root/bench/gpu_suite.sh
stages_known=(tests random soak sanitizer accuracy bench profile)
stage_seconds=480
tool_seconds=115  # of each of compute-sanitizer's tools

die() { echo "gpu_suite.sh: $1" >&2; exit 2; }
usage() { sed -n '2,20s/^# \{0,1\}//p' "$self"; }

# ---- the stages, each run in a process of its own ----------------------------------------------------------
# A stage prints its log, writes what it counted to $WORK/count, and ends with 0 (pass), 1 (fail) or 77 (skip). Files
# that are not results lie in $WORK.

count() { echo "$*" >"$WORK/count"; }

have_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || [ -e /dev/nvidia0 ]; }

need() {  # need FILE...: programs that must be there, and start
  local file missing
  for file; do
    if [ ! -x "$file" ]; then count "$file is not built"; return 1; fi
    missing=$(ldd "$file" 2>/dev/null | awk '/not found/ { print $1 }' | paste -sd' ') || missing=
    if [ -n "$missing" ]; then count "$file lacks $missing"; return 1; fi
  done
}

# Sums GoogleTest's last lines over logs: "812 passed, 3 skipped, 0 failed".
gtest_counts() {
  awk '/^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
       /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4 }
       /^\[  FAILED  \] [0-9]+ test/ { failed += $4 }
       END { printf "%d passed, %d skipped, %d failed", passed, skipped, failed }' "$@"
}

# What one shard cannot judge (tests/support/row_suite.hpp): each says "TALLY Cases v0_unfused ran 12 rejected 259" of
# every suite and kernel. Summed over logs: those that rejected every one of fifty calls and more.
rejected_whole() {
  awk '$1 == "TALLY" && NF == 7 { ran[$2 ": " $3] += $5; rejected[$2 ": " $3] += $7 }
       END { for (row in ran)
               if (ran[row] == 0 && rejected[row] >= 50)
                 printf "%s rejected all of %d calls\n", row, rejected[row] }' "$@" | sort
}

# The tests whose names end in a row of a device, or in that side.
on_device='*/V?_*:*/device*'
# What ctest runs as forward_in_..._bytes and backward_in_..._bytes: the tests that choose a tile, by every row but those
# that the class cannot change. V1, V2, V7, V8 and backward read it (shared_memory_per_block): to choose, to
# reject, or as the opt-in of a launch. V0's shared memory is static, and the tiles of V3 to V6 have 33 KB at
# most, for which no launch opts in (48 KB, kernels/launch.hpp).
in_smaller_classes='*/Problem*/V?_*:*/Exact.*/V?_*:*/BackwardProblem*/V?_*:*/BackwardExact.*/V?_*'
in_smaller_classes+=':-*/V0_*:*/V3_*:*/V4_*:*/V5_*:*/V6_*'
smaller_classes=(101376 166912)
# What ctest runs as forward_on_3_multiprocessors: the rows that count them.
on_few_multiprocessors='*/Problem*/V7_*:*/Problem*/V8_*:*/Exact.*/V7_*:*/Exact.*/V8_*'
on_few_multiprocessors+=':-*BatchesAndHeads*'

# A pool of processes. start PASS NAME COMMAND ...: waits until fewer than $SHARDS run, then starts one, whose log is
# $WORK/log/PASS/NAME.
pool_status=0
pool_pids=()
pool_logs=()

wait_for_one() {
  local pid status=0
  wait -n -p pid "${pool_pids[@]}" || status=$?
  # 77: every test of that process skipped itself.
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
    pool_status=1
    echo "== ${pool_logs[$pid]#"$WORK/log/"}: status $status"
  fi
  local left=() other
  for other in "${pool_pids[@]}"; do
    if [ "$other" -ne "$pid" ]; then left+=("$other"); fi
  done
  pool_pids=("${left[@]}")
}

start() {
  local log=$WORK/log/$1/$2
  shift 2
  mkdir -p "${log%/*}"
  while ((${#pool_pids[@]} >= SHARDS)); do wait_for_one; done
  "$@" >"$log" 2>&1 &
  pool_pids+=($!)
  pool_logs[$!]=$log
}

# start_shards PASS N COMMAND ...: the program's tests in N processes.
start_shards() {
  local pass=$1 shards=$2 shard
  shift 2
  for ((shard = 0; shard < shards; ++shard)); do
    start "$pass" "shard_$shard" env "GTEST_TOTAL_SHARDS=$shards" "GTEST_SHARD_INDEX=$shard" "$@"
  done
}

# Waits for the pool, prints the logs without what passed, counts pass by pass. Ends with the stage's status.
finish_pool() {
  local pass log counts whole all=()
  while ((${#pool_pids[@]})); do wait_for_one; done
  for pass in "$@"; do
    for log in "$WORK/log/$pass"/*; do
      echo "== $pass/${log##*/}"
      grep -vE '^\[ RUN |^\[       OK|^\[-----|^TALLY ' "$log" || true
    done
    counts=$(gtest_counts "$WORK/log/$pass"/*)
    if [[ $counts == "0 passed, "*", 0 failed" ]] && [ "$pool_status" -eq 0 ]; then pool_status=77; fi
    whole=$(rejected_whole "$WORK/log/$pass"/*)
    # Shards that say nothing, though tests passed, would leave the rows unjudged.
    if [ -e "$WORK/log/$pass/shard_1" ] && [[ $counts != "0 passed, "* ]] &&
      ! grep -q '^TALLY ' "$WORK/log/$pass"/*; then
      whole='no shard says what its rows rejected'
    fi
    if [ -n "$whole" ]; then
      pool_status=1
      counts+=" ($(paste -sd, <<<"$whole"))"
    fi
    echo "== $pass: $counts"
    all+=("$pass $counts")
  done
  count "$(printf '%s; ' "${all[@]}" | sed 's/; $//')"
  return "$pool_status"
}

stage_tests() {
  local program which class programs=() passes=()
  need "$BUILD/tests/host_test" "$BUILD/tests/forward_test" || return 1
  for which in forward backward; do
    if [ -x "$BUILD/tests/${which}_test" ]; then programs+=("$which"); fi
  done
  # The longest passes first, in more processes than run at a time, so that none runs on alone.
  for which in "${programs[@]}"; do
    passes+=("$which")
    start_shards "$which" $((2 * SHARDS)) env "FLASHATTN_TEST_PROBLEMS=$root/tests/$which/problems.txt" \
      "$BUILD/tests/${which}_test" --gtest_filter="$on_device"
  done
  for which in "${programs[@]}"; do
    for class in "${smaller_classes[@]}"; do
      passes+=("${which}_in_$class")
      start_shards "${which}_in_$class" "$SHARDS" env "FLASHATTN_MAX_SMEM=$class" \
        "FLASHATTN_TEST_PROBLEMS=$root/tests/$which/problems.txt" \
        "$BUILD/tests/${which}_test" --gtest_filter="$in_smaller_classes"
    done
  done
  passes+=(forward_on_3_multiprocessors)
  start_shards forward_on_3_multiprocessors "$SHARDS" env FLASHATTN_MAX_MULTIPROCESSORS=3 \
    "FLASHATTN_TEST_PROBLEMS=$root/tests/forward/problems.txt" \
    "$BUILD/tests/forward_test" --gtest_filter="$on_few_multiprocessors"
  # The small programs, one process each.
  passes+=(others)
  for program in "$BUILD"/tests/*_test; do
    if [[ ${program##*/} != @(forward|backward)_test ]] && [ -x "$program" ]; then
      start others "${program##*/}" "$program" --gtest_filter="$on_device:*Fill.*:*Device*"
    fi
  done
  finish_pool "${passes[@]}"
}

stage_random() {
  need "$BUILD/tests/forward_test" "$BUILD/tests/backward_test" || return 1
  start_shards forward $((2 * SHARDS)) env FLASHATTN_TEST_RANDOM_LONG=2000 \
    "$BUILD/tests/forward_test" --gtest_filter='*/ManyRandom.*/V7_*:*/ManyRandom.*/V8_*'
  start_shards forward_on_3_multiprocessors "$SHARDS" env FLASHATTN_MAX_MULTIPROCESSORS=3 FLASHATTN_TEST_RANDOM_LONG=500 \
    "$BUILD/tests/forward_test" --gtest_filter='*/ManyRandom.*/V8_*'
  start_shards backward $((2 * SHARDS)) env FLASHATTN_TEST_RANDOM_LONG=1000 \
    "$BUILD/tests/backward_test" --gtest_filter='*/BackwardManyRandom.*/V?_*'
  finish_pool forward forward_on_3_multiprocessors backward
}

stage_soak() {
  local status=0 calls
  need "$BUILD/tests/soak_test" || return 1
  start soak rows env FLASHATTN_TEST_SOAK=200000 \
    "$BUILD/tests/soak_test" --gtest_filter='*/Soak.TwoStreamsGiveTheSameBits/V8_*'
  finish_pool soak || status=$?
  # Each row that held says "SOAK V8_fp16 calls 200000".
  calls=$(awk '$1 == "SOAK" && NF == 4 { printf "%s%s %d calls", (n++ ? ", " : ""), $2, $4 }' "$WORK/log/soak/rows")
  if [ "$status" -eq 0 ] && [ -z "$calls" ]; then
    status=1
    calls='no row says how many calls it made'
  fi
  count "$(cat "$WORK/count")${calls:+; $calls}"
  return "$status"
}

find_tool() {
  command -v "$1" && return
  local path=/usr/local/cuda/bin/$1
  [ -x "$path" ] && echo "$path"
}

# sanitize SANITIZER TOOL WHICH: one tool over tests/WHICH/sanitize_problems.txt. Adds to stage_sanitizer's verdicts.
sanitize() {
  local tool=$2 which=$3 program=$BUILD/tests/$3_test log=$WORK/sanitizer
  local filter='*Problems.*/V?_*' flags=() start=$SECONDS one=0 ran said
  # Without guard bands memcheck sees the ends of every allocation, where the program can leave them out.
  if [ "$tool" = memcheck ] && "$program" --no-guards --gtest_list_tests >/dev/null 2>&1; then flags=(--no-guards); fi
  if [ "$tool" = initcheck ]; then
    flags=(--no-prefill)
    # It does not see what the copy engine stores (CUDA 13.0): V8's outputs would count as never written.
    filter+=':-*_gaps:*/V8_*'
  fi
  echo "== $which $tool"
  # On 3 multiprocessors V8's blocks walk over several query tiles of these small problems.
  FLASHATTN_MAX_MULTIPROCESSORS=3 FLASHATTN_TEST_PROBLEMS=$root/tests/$which/sanitize_problems.txt \
    timeout --kill-after=10 "$tool_seconds" \
    "$1" --tool "$tool" --error-exitcode 9 "$program" --gtest_filter="$filter" "${flags[@]}" >"$log" 2>&1 || one=$?
  grep -vE '^\[ RUN |^\[-----' "$log" | head -n 400 || true
  ran=$(grep -c '^\[       OK' "$log" || true)
  said=$(grep -E '(ERROR|RACECHECK) SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//') || said=
  if [ "$one" -eq 124 ]; then said="not finished after $tool_seconds s"; fi
  if [ "$one" -ne 0 ] || [ "$ran" -eq 0 ] ||
    ! [[ $said =~ (ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)) ]]; then
    verdicts+=("$which $tool FAILED (status $one, $ran tests, ${said:-no summary})")
  else
    verdicts+=("$which $tool clean ($ran tests, $((SECONDS - start)) s)")
  fi
  rm -f "$log"
  echo "== ${verdicts[-1]}"
  # What has been seen so far, for a stage that is ended.
  (IFS=';'; count "${verdicts[*]}")
}

stage_sanitizer() {
  local sanitizer tool which verdicts=()
  if ! sanitizer=$(find_tool compute-sanitizer); then count "compute-sanitizer is not installed"; return 77; fi
  "$sanitizer" --version | head -n 2 || true
  need "$BUILD/tests/forward_test" "$BUILD/tests/backward_test" || return 1
  for which in forward backward; do
    for tool in memcheck racecheck synccheck initcheck; do sanitize "$sanitizer" "$tool" "$which"; done
  done
  [[ ${verdicts[*]} != *FAILED* ]]
}

stage_accuracy() {
  local program=$BUILD/bench/tools/accuracy_attention status=0
  need "$program" || return 1
  if ! have_gpu; then count "no CUDA device"; return 77; fi
  "$program" --seed 1 --json "$OUT/accuracy.json" || status=$?
  count "$(grep -o '"state": "[a-z]*"' "$OUT/accuracy.json" 2>/dev/null | sort | uniq -c | awk '{ gsub(/"/, "", $3); printf "%s%d %s", (NR > 1 ? ", " : ""), $1, $3 }')"
  return "$status"
}

stage_bench() {
  local program=$BUILD/bench/bench_attention status=0 words=()
  need "$program" || return 1
  if ! have_gpu; then count "no CUDA device"; return 77; fi
  read -r -a words <<<"$BENCH_ARGS"
  "$program" --side device --problems-dir "$root/bench/problems" --json "$OUT/bench.json" "${words[@]}" || status=$?
  count "$(grep -o '"state": "[a-z ]*"' "$OUT/bench.json" 2>/dev/null | sort | uniq -c | awk '{ gsub(/"/, "", $3); printf "%s%d %s", (NR > 1 ? ", " : ""), $1, $3 }')"
  return "$status"
}

stage_profile() {
  local status=0
  if ! find_tool ncu >/dev/null && ! compgen -G '/opt/nvidia/nsight-compute/*/ncu' >/dev/null; then
    count "ncu is not installed"
    return 77
  fi
  need "$BUILD/bench/tools/one_call" || return 1
  "$root/bench/profile/profile.sh" --build "$BUILD" --out "$OUT/profile.json" || status=$?
  count "$(grep -c '"call"' "$OUT/profile.json" 2>/dev/null || true) rungs profiled"
  if [ "$status" -eq 2 ]; then return 77; fi
  return "$status"
}

if [ "${1:-}" = __stage ]; then  # BUILD, OUT, WORK, SHARDS and BENCH_ARGS are in the environment
  "stage_$2"
  exit
fi

# ---- the command line ----------------------------------------------------------------------------------------

BUILD='' OUT='' SHARDS=8 BENCH_ARGS=''
stages=()
while (($#)); do
  case $1 in
    --out) [ $# -ge 2 ] || die "--out needs a folder"; OUT=$2; shift 2 ;;
    --shards) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--shards needs a number"; SHARDS=$2; shift 2 ;;
    --bench-args) [ $# -ge 2 ] || die "--bench-args needs words"; BENCH_ARGS=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    -*) die "unknown flag '$1'" ;;
    *)
      if [ -z "$BUILD" ]; then
        [ -d "$1" ] || die "'$1' is no folder: the first word is the build's"
        BUILD=$(cd "$1" && pwd)
      else
        [[ " ${stages_known[*]} " == *" $1 "* ]] || die "'$1' is none of ${stages_known[*]}"
        stages+=("$1")
      fi
      shift ;;
  esac
done
[ -n "$BUILD" ] || die "name the build's folder (see --help)"
((${#stages[@]})) || stages=("${stages_known[@]}")

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || gpu=
slug=$(tr '[:upper:] ' '[:lower:]_' <<<"${gpu:-no_gpu}" | tr -cd 'a-z0-9_')
OUT=${OUT:-$root/bench/results/$(date -u +%F)-$slug}
mkdir -p "$OUT" 2>/dev/null || die "--out: cannot make '$OUT'"
OUT=$(cd "$OUT" && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export BUILD OUT WORK SHARDS BENCH_ARGS

# cuBLAS and cuDNN are linked or opened by name: where they are, if the loader does not know. cuDNN may lie in a
# folder of its own.
libraries=
if [ -d /usr/local/cuda/lib64 ]; then libraries=/usr/local/cuda/lib64; fi
if ! ldconfig -p 2>/dev/null | grep -q 'libcudnn\.so\.9' && [ ! -e /usr/local/cuda/lib64/libcudnn.so.9 ]; then
  cudnn=$(timeout 20 find /usr /opt -xdev -name 'libcudnn.so.9' -print -quit 2>/dev/null) || cudnn=
  if [ -n "$cudnn" ]; then libraries+=${libraries:+:}$(dirname "$cudnn"); fi
fi
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+${libraries:+:}}$libraries

# ---- the run -------------------------------------------------------------------------------------------------

# The commit of the programs, where it is named; else the checkout's.
commit_of_checkout() {
  local commit
  commit=$(git -C "$root" rev-parse --verify -q HEAD) || { echo unknown; return; }
  if git -C "$root" diff --quiet HEAD 2>/dev/null; then echo "$commit"; else echo "$commit-dirty"; fi
}

summary=$OUT/summary.txt
{
  echo "date     $(date -u '+%F %H:%M UTC')"
  echo "gpu      $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | paste -sd';' || true)"
  echo "commit   ${FLASHATTN_GIT_COMMIT:-$(commit_of_checkout)}"
  echo "host     $(uname -sr), $(nproc) processors"
} | tee -a "$summary"
have_gpu || echo "note     no GPU is visible; what needs one is skipped" | tee -a "$summary"

# Who ends the suite ends its stage, whose processes would else run on, and on the device.
stage_pid=
stop() {
  trap - TERM INT
  if [ -n "$stage_pid" ]; then
    echo "== stopped: the last of what it had to say"
    tail -n 5 "$WORK"/log/*/* "$WORK/stage.log" 2>/dev/null || true
    kill "$stage_pid" 2>/dev/null || true
    wait "$stage_pid" || true
  fi
  exit 143
}
trap stop TERM INT

failed=0
for stage in "${stages[@]}"; do
  echo
  echo "==== $stage"
  start=$SECONDS
  status=0
  rm -rf "${WORK:?}"/*
  timeout --kill-after=15 "$stage_seconds" "$self" __stage "$stage" >"$WORK/stage.log" 2>&1 &
  stage_pid=$!
  wait "$stage_pid" || status=$?
  stage_pid=
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then  # ended before it had told
    tail -n 30 "$WORK"/log/*/* "$WORK/sanitizer" >>"$WORK/stage.log" 2>/dev/null || true
    seen=$(cat "$WORK/count" 2>/dev/null) || seen=
    echo "not finished after $stage_seconds s${seen:+; until then: $seen}" >"$WORK/count"
  fi
  { echo; echo "==== $stage"; cat "$WORK/stage.log"; } >>"$OUT/suite.log"
  tail -n 40 "$WORK/stage.log"
  case $status in
    0) verdict=pass ;;
    77) verdict=skip; failed=1 ;;
    *) verdict=fail; failed=1 ;;
  esac
  printf '%-10s %-5s %4d s  %s\n' "$stage" "$verdict" $((SECONDS - start)) "$(cat "$WORK/count" 2>/dev/null || true)" >>"$summary"
done

echo
echo "==== $OUT"
cat "$summary"
exit $failed
