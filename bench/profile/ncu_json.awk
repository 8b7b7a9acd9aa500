# Nsight Compute's raw page as CSV -> the body of one rung's JSON object: its kernels, and sums over them.
#
#   awk -v aliases="duration_s=gpu__time_duration.sum ..." -f csv.awk -f ncu_json.awk raw.csv
#
# aliases: our name=ncu's name, one a word; several ncu names joined by "|" are alternatives, the first with a
# number counts. Numbers come out in seconds, bytes, and plain counts, whatever unit the CSV has them in. A metric
# that is not there, or is n/a, is left out. Names that end in _s, _bytes or _sectors are summed. Lines outside the table (==PROF== ...) are skipped.
# Exit status 1: no kernel was found.

# What a number in `unit` is multiplied with: to seconds, bytes, counts.
function factor(unit,    prefix) {
  sub(/\/.*/, "", unit)                            # byte/block, register/thread
  if (unit ~ /^(ns|nsecond)$/) return 1e-9
  if (unit ~ /^(us|usecond)$/) return 1e-6
  if (unit ~ /^(ms|msecond)$/) return 1e-3
  if (unit ~ /^[KMGT](byte|sector|inst|cycle)?s?$/) {
    prefix = substr(unit, 1, 1)
    return prefix == "K" ? 1e3 : prefix == "M" ? 1e6 : prefix == "G" ? 1e9 : 1e12
  }
  return 1
}

# The metric's number in this row, or "".
function value(names, row,    n, i, list, column, text) {
  n = split(names, list, "|")
  for (i = 1; i <= n; ++i) {
    if (!(list[i] in column_of)) continue
    column = column_of[list[i]]
    text = row[column]
    gsub(/,/, "", text)                            # 1,234,567
    if (is_number(text)) return sprintf("%.12g", text * factor(unit[column]))
  }
  return ""
}

BEGIN {
  count = split(aliases, alias, " ")
  for (i = 1; i <= count; ++i) {
    at = index(alias[i], "=")
    name[i] = substr(alias[i], 1, at - 1)
    metric[i] = substr(alias[i], at + 1)
  }
  kernels = 0
}

!/^"/ { next }

{
  fields = split_csv($0, row)
  if (row[1] == "ID") {                            # the header; a file may hold more than one table
    split("", column_of); split("", unit)
    for (i = 1; i <= fields; ++i) column_of[row[i]] = i
    header = fields
    next
  }
  if (fields != header) next
  if (row[1] == "") {                              # the units
    for (i = 1; i <= fields; ++i) unit[i] = row[i]
    next
  }
  kernel = row[column_of["Kernel Name"]]
  sub(/^void /, "", kernel)
  line = sprintf("{\"kernel\": %s, \"grid\": %s, \"block\": %s", quote(kernel), quote(row[column_of["Grid Size"]]),
                 quote(row[column_of["Block Size"]]))
  for (i = 1; i <= count; ++i) {
    x = value(metric[i], row)
    if (x == "") continue
    line = line sprintf(", \"%s\": %s", name[i], x)
    got[name[i]] = x
    if (name[i] ~ /_(s|bytes|sectors)$/) { sum[name[i]] += x; ++summed[name[i]] }
  }
  # Conflicts per wavefront, from the two counts beside them.
  if (got["shared_load_wavefronts"] > 0)
    line = line sprintf(", \"shared_load_conflicts_per_wavefront\": %.4g",
                        got["shared_load_conflicts"] / got["shared_load_wavefronts"])
  if (got["shared_store_wavefronts"] > 0)
    line = line sprintf(", \"shared_store_conflicts_per_wavefront\": %.4g",
                        got["shared_store_conflicts"] / got["shared_store_wavefronts"])
  split("", got)
  object[++kernels] = line "}"
}

END {
  if (kernels == 0) exit 1
  printf "\"sum\": {\"kernels\": %d", kernels
  for (i = 1; i <= count; ++i)
    if (summed[name[i]] == kernels) printf ", \"%s\": %.12g", name[i], sum[name[i]]
  printf "}, \"per_kernel\": ["
  for (i = 1; i <= kernels; ++i) printf "%s\n      %s", (i > 1 ? "," : ""), object[i]
  printf "]"
}
