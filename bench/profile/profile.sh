#!/bin/bash
# Nsight Compute over every rung that has a kernel on the device, one call each, into one JSON file.
#
#   bench/profile/profile.sh --build build/release [--problem 'B4 H12 S2048 D64'] [--out FILE] [--conflicts]
#                            [rung[:dtype] ...]
#
# rung: V1, or V1:fp32; none: all of them, in every element type. --conflicts: instead of the whole list, what
# loads from and stores to shared memory cost, summed over the instructions of the machine code. The clocks stay as they are, and the caches are
# flushed before each pass (both are said to ncu). Exit status: 0; 1 where a rung could not be profiled; 2 for a
# bad command line or a missing tool. docs/operations.md says what the figures mean.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/release
problem='B4 H12 S2048 D64'
out=''
seconds_per_rung=100
conflicts=0
rungs=()

usage() { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "profile.sh: $1" >&2; exit 2; }

while (($#)); do
  case $1 in
    --build) [ $# -ge 2 ] || die "--build needs a folder"; build=$2; shift 2 ;;
    --problem) [ $# -ge 2 ] || die "--problem needs a line"; problem=$2; shift 2 ;;
    --out) [ $# -ge 2 ] || die "--out needs a file"; out=$2; shift 2 ;;
    --conflicts) conflicts=1; shift ;;
    --help | -h) usage; exit 0 ;;
    -*) die "unknown flag '$1'" ;;
    *) rungs+=("$1"); shift ;;
  esac
done

one_call=$build/bench/tools/one_call
[ -x "$one_call" ] || die "$one_call is not there: build the target one_call"
for word in fp32 fp16 bf16; do
  [[ " $problem " != *" $word "* ]] || die "--problem: leave out the element type, the rungs have their own"
done

find_ncu() {
  local path
  if path=$(command -v ncu); then echo "$path"; return; fi
  for path in /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
  return 1
}
ncu=$(find_ncu) || die "ncu (Nsight Compute) is not installed"

# ---- what is measured ------------------------------------------------------------------------------------

# our name=ncu's name; "|" between alternatives for the same thing on different chips. Seconds, bytes (shared
# memory: per block), sectors of 32 bytes, percent, cycles per issued instruction.
metrics=(
  "duration_s=gpu__time_duration.sum"
  "registers_per_thread=launch__registers_per_thread"
  "dynamic_shared=launch__shared_mem_per_block_dynamic"
  "static_shared=launch__shared_mem_per_block_static"
  "blocks=launch__grid_size"
  "waves=launch__waves_per_multiprocessor"
  "theoretical_occupancy_pct=sm__maximum_warps_per_active_cycle_pct"
  "achieved_occupancy_pct=sm__warps_active.avg.pct_of_peak_sustained_active"
  "dram_read_bytes=dram__bytes_read.sum"
  "dram_write_bytes=dram__bytes_write.sum"
  "l2_read_sectors=lts__t_sectors_op_read.sum"
  "l2_write_sectors=lts__t_sectors_op_write.sum"
  "global_load_bytes=l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"
  "global_store_bytes=l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"
  "shared_load_conflicts=l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
  "shared_load_wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
  "shared_store_conflicts=l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
  "shared_store_wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
  "cycles_per_instruction=smsp__average_warp_latency_per_inst_issued.ratio"
  "stall_short_scoreboard=smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"
  "stall_long_scoreboard=smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
  "stall_mio_throttle=smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio"
  "stall_lg_throttle=smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio"
  "stall_barrier=smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
  "stall_math_pipe=smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio"
  "stall_wait=smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
  "stall_not_selected=smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
  "short_scoreboard_pct=smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct"
  "issue_active_pct=smsp__issue_active.avg.pct_of_peak_sustained_active"
  "sm_throughput_pct=sm__throughput.avg.pct_of_peak_sustained_elapsed"
  "l1_throughput_pct=l1tex__throughput.avg.pct_of_peak_sustained_active"
  "l2_throughput_pct=lts__throughput.avg.pct_of_peak_sustained_elapsed"
  "dram_throughput_pct=dram__throughput.avg.pct_of_peak_sustained_elapsed"
  "fma_pipe_pct=sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active|sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
  "tensor_pipe_pct=sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active|sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
  "tensor_cycles_pct=sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active|sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
  "xu_pipe_pct=sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
)
# With --conflicts: the counters of L1's data pipe, which also count what its other users cost, and beside them the
# wavefronts that ncu attributes to instructions, loads and stores together.
if ((conflicts)); then
  metrics=(
    "shared_load_instructions=smsp__inst_executed_op_shared_ld.sum"
    "shared_store_instructions=smsp__inst_executed_op_shared_st.sum"
    "shared_load_conflicts=l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    "shared_load_wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    "shared_store_conflicts=l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
    "shared_store_wavefronts=l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
    "instruction_wavefronts=memory_l1_wavefronts_shared"
    "instruction_least_wavefronts=memory_l1_wavefronts_shared_ideal"
  )
fi
# The names that a run must not be without: asked for alone where the whole list fails.
essential='^(duration_s|registers_per_thread|dynamic_shared|static_shared|dram_|achieved_|shared_)'

# ncu's names, each on a line, without those that this chip does not have. launch__ and sm__maximum are no
# counters, so that the query does not list them.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 90 "$ncu" --query-metrics >"$work/query" 2>&1 || true
wanted() {  # wanted REGEX-OF-OUR-NAMES
  printf '%s\n' "${metrics[@]}" | grep -E "$1" | cut -d= -f2- | tr '|' '\n' |
    awk -v query="$work/query" '
      BEGIN { while ((getline line < query) > 0) { split(line, word, " "); known[word[1]] = 1; ++lines } }
      { base = $1; sub(/\..*/, "", base) }
      $1 ~ /^memory_/ { next }  # of the section SourceCounters
      lines < 300 || base in known || base ~ /^(launch__|sm__maximum)/ { print $1 }'
}

# run_ncu NAMES-FILE RUNG LINE: the CSV in $work/csv, one_call's line in $work/call, everything in $work/log; with
# --conflicts the source page in $work/source.
run_ncu() {
  local status=0 output=(--csv --page raw --print-units base --log-file "$work/csv")
  : >"$work/csv"
  if ((conflicts)); then
    rm -f "$work"/report*
    output=(--section SourceCounters --export "$work/report")
  fi
  timeout --kill-after=10 "$seconds_per_rung" "$ncu" --profile-from-start off --clock-control none \
    --cache-control all "${output[@]}" --metrics "$(paste -sd, "$1")" "$one_call" "$2" "$3" \
    >"$work/call" 2>"$work/log" || status=$?
  if ((conflicts)) && compgen -G "$work/report*" >/dev/null; then
    "$ncu" --import "$work"/report* --csv --page raw --print-units base >"$work/csv" 2>>"$work/log" || status=$?
    "$ncu" --import "$work"/report* --csv --page source --print-source sass >"$work/source" 2>>"$work/log" || status=$?
  fi
  return "$status"
}

# The body of the rung's JSON object, or status 1.
body_of() {
  local by_instruction
  awk -v aliases="${metrics[*]}" -f "$here/csv.awk" -f "$here/ncu_json.awk" "$work/csv" || return 1
  if ! ((conflicts)); then return; fi
  if by_instruction=$(awk -f "$here/csv.awk" -f "$here/source_json.awk" "$work/source"); then
    printf ',\n     "by_instruction": {%s}' "$by_instruction"
  else
    echo "profile: the source page lacks the columns of shared memory; it begins:" >&2
    head -c 1500 "$work/source" >&2
  fi
}

# ---- the rungs -------------------------------------------------------------------------------------------

if ((${#rungs[@]} == 0)); then
  mapfile -t rungs < <("$one_call" --list | tr ' ' ':')
fi
((${#rungs[@]})) || die "this build has no kernel for a device"
expanded=()
for rung in "${rungs[@]}"; do
  if [[ $rung == *:* ]]; then expanded+=("$rung"); continue; fi
  mapfile -t -O "${#expanded[@]}" expanded < <("$one_call" --list | awk -v rung="$rung" '$1 == rung { print $1 ":" $2 }')
done
((${#expanded[@]})) || die "none of ${rungs[*]} has a kernel for a device in this build"

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1 || true; }
gpu=$(smi name)
gpu=${gpu:-unknown}
if [ -z "$out" ]; then
  slug=$(tr '[:upper:] ' '[:lower:]_' <<<"$gpu" | tr -cd 'a-z0-9_')
  if ((conflicts)); then slug+=_conflicts; fi
  out=$root/bench/results/profile_${slug}_$(date -u +%F).json
fi
mkdir -p "$(dirname "$out")"

json_text() { sed 's/\\/\\\\/g; s/"/\\"/g' <<<"$1" | tr -d '\r' | tr '\n\t' '  ' | sed 's/ *$//'; }

wanted . >"$work/all"
wanted "$essential" >"$work/few"
failed=0
: >"$work/rungs"
for rung in "${expanded[@]}"; do
  version=${rung%%:*} dtype=${rung##*:}
  echo "profile: $version $dtype" >&2
  start=$SECONDS
  status=0
  run_ncu "$work/all" "$version" "$dtype $problem" || status=$?
  body=
  # ncu need not pass one_call's own status on.
  if grep -q 'one_call: .* refuses ' "$work/log"; then status=3; fi
  if [ $status -ne 3 ]; then
    body=$(body_of) || body=
    if [ -z "$body" ] && [ $status -ne 124 ] && ! ((conflicts)); then
      echo "profile: $version $dtype: the whole list of metrics failed (status $status), trying the essential ones" >&2
      tail -n 5 "$work/csv" "$work/log" >&2
      status=0
      run_ncu "$work/few" "$version" "$dtype $problem" || status=$?
      body=$(body_of) || body=
    fi
  fi
  [ ! -s "$work/rungs" ] || echo ',' >>"$work/rungs"
  if [ -n "$body" ] && grep -q '^{' "$work/call"; then
    printf '    {"call": %s,\n     %s}' "$(grep '^{' "$work/call" | tail -n 1)" "$body" >>"$work/rungs"
    echo "profile: $version $dtype: $((SECONDS - start)) s" >&2
  elif [ $status -eq 3 ]; then
    printf '    {"rung": "%s", "dtype": "%s", "skipped": "%s"}' "$version" "$dtype" \
      "$(json_text "$(grep -h 'one_call: ' "$work/log" | head -n 1)")" >>"$work/rungs"
    echo "profile: $version $dtype: skipped, it refuses the problem" >&2
  else
    failed=1
    reason="ncu ended with status $status: $(grep -hE 'ERROR|error|one_call: ' "$work/csv" "$work/log" "$work/call" | head -n 3 || true)"
    printf '    {"rung": "%s", "dtype": "%s", "failed": "%s"}' "$version" "$dtype" "$(json_text "$reason")" >>"$work/rungs"
    echo "profile: $version $dtype: FAILED, $reason" >&2
  fi
done

{
  echo '{'
  echo '  "facts": {'
  echo "    \"gpu\": \"$(json_text "$gpu")\","
  echo "    \"driver\": \"$(json_text "$(smi driver_version)")\","
  echo "    \"ncu\": \"$(json_text "$("$ncu" --version | grep -i version | head -n 1)")\","
  echo "    \"date\": \"$(date -u '+%F %H:%M UTC')\","
  echo '    "clocks": "not controlled", "caches": "flushed before each pass"'
  echo '  },'
  echo "  \"problem\": \"$(json_text "$problem")\","
  echo '  "metrics": {'
  printf '%s\n' "${metrics[@]}" | awk -F= '{ printf "%s    \"%s\": \"%s\"", (NR > 1 ? ",\n" : ""), $1, $2 } END { print "" }'
  echo '  },'
  echo '  "rungs": ['
  cat "$work/rungs"
  echo
  echo '  ]'
  echo '}'
} >"$out"
echo "profile: $out" >&2
exit $failed
