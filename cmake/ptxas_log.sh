#!/bin/sh
# Runs a compiler and keeps what it writes to stderr beside the object, as <object>.ptxas.log. ptxas' resource
# usage stays in that log; the rest is shown as well. Used as a compiler launcher: ptxas_log.sh nvcc ... -o OBJECT ...
object=
previous=
for argument in "$@"; do
  if [ "$previous" = "-o" ]; then object=$argument; fi
  previous=$argument
done
if [ -z "$object" ]; then exec "$@"; fi

log=$object.ptxas.log
"$@" 2>"$log"
status=$?
grep -v -e '^ptxas info *:' -e '^ *[0-9]* bytes stack frame' "$log" >&2
exit $status
