# Nsight Compute's source page (SASS) as CSV -> a JSON object: wavefronts of loads from and stores to shared memory,
# as counted instruction by instruction, and how many their addresses need at the least.
#
#   awk -f csv.awk -f source_json.awk source.csv
#
# Summed over all kernels of the page. What is beyond the least is due to bank conflicts. Exit status 1: no table with
# these columns, or no access to shared memory.

function number(text) { gsub(/,/, "", text); return is_number(text) ? text + 0 : 0 }

# LDS and LDSM are loads, STS and STSM stores; a predicate may come first.
function access_of(text) {
  sub(/^[ \t]*(@!?U?P[T0-9]+[ \t]+)?/, "", text)
  return text ~ /^LDS(M|\.|[ \t])/ ? "loads" : text ~ /^STS(M|\.|[ \t])/ ? "stores" : ""
}

function object_of(access) {
  return sprintf("{\"instructions\": %d, \"executed\": %.12g, \"wavefronts\": %.12g, \"least_wavefronts\": %.12g, \"excess_per_wavefront\": %.4g}",
                 instructions[access], executed[access], wavefronts[access], least[access],
                 wavefronts[access] > 0 ? (wavefronts[access] - least[access]) / wavefronts[access] : 0)
}

!/^"/ { next }

{
  fields = split_csv($0, row)
  split("", at)
  for (i = 1; i <= fields; ++i) if (!(row[i] in at)) at[row[i]] = i
  if (("Source" in at) && ("L1 Wavefronts Shared" in at)) {  # the header, one for each kernel
    source = at["Source"]; actual = at["L1 Wavefronts Shared"]
    ideal = at["L1 Wavefronts Shared Ideal"]; count = at["Instructions Executed"]
    header = fields
    next
  }
  if (header == 0 || fields != header || ideal == "") next
  access = access_of(row[source])
  if (access == "") next
  ++instructions[access]
  if (count != "") executed[access] += number(row[count])
  wavefronts[access] += number(row[actual])
  least[access] += number(row[ideal])
}

END {
  if (wavefronts["loads"] + wavefronts["stores"] == 0) exit 1
  printf "\"shared_loads\": %s,\n      \"shared_stores\": %s", object_of("loads"), object_of("stores")
}
