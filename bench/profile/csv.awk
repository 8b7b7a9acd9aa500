# Functions that the awk programs beside this one share: reading a line of CSV, writing a word of JSON.

# Splits a CSV line into field[1..n], quotes removed; commas inside quotes stay.
function split_csv(line, field,    n, c, i, quoted, text) {
  n = 0; text = ""; quoted = 0
  for (i = 1; i <= length(line); ++i) {
    c = substr(line, i, 1)
    if (c == "\"") {
      if (quoted && substr(line, i + 1, 1) == "\"") { text = text c; ++i } else quoted = !quoted
    } else if (c == "," && !quoted) {
      field[++n] = text; text = ""
    } else if (c != "\r") {
      text = text c
    }
  }
  field[++n] = text
  return n
}

function is_number(text) { return text ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }

function quote(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
