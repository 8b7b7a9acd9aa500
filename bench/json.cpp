#include "bench/json.hpp"

#include <cmath>
#include <cstdio>
#include <string>

namespace fa::bench {

namespace {

/// Writes values with their commas; the caller opens and closes.
class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}

  void open(char bracket) {
    separate();
    out_ << bracket;
    first_ = true;
    ++depth_;
  }
  void close(char bracket) {
    --depth_;
    if (!first_) new_line();
    out_ << bracket;
    first_ = false;
  }
  Writer& key(const std::string& name) {
    separate();
    quote(name);
    out_ << ": ";
    after_key_ = true;
    return *this;
  }
  void value(const std::string& text) {
    separate();
    quote(text);
  }
  void value(const char* text) { value(std::string(text)); }
  void value(double number) {
    separate();
    if (!std::isfinite(number)) {
      out_ << "null";
      return;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", number);
    out_ << text;
  }
  void value(const std::vector<double>& numbers) {
    separate();
    out_ << '[';
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      char text[32];
      std::snprintf(text, sizeof text, "%s%.6g", i > 0 ? ", " : "", numbers[i]);
      out_ << text;
    }
    out_ << ']';
  }

 private:
  void separate() {
    if (after_key_) {
      after_key_ = false;
      return;
    }
    if (!first_) out_ << ',';
    if (depth_ > 0) new_line();
    first_ = false;
  }
  void new_line() { out_ << '\n' << std::string(static_cast<std::size_t>(2 * depth_), ' '); }
  void quote(const std::string& text) {
    out_ << '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out_ << '\\' << c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        out_ << escaped;
      } else {
        out_ << c;
      }
    }
    out_ << '"';
  }

  std::ostream& out_;
  int depth_ = 0;
  bool first_ = true, after_key_ = false;
};

const char* name_of(RowResult::State state) {
  switch (state) {
    case RowResult::State::pending:
      return "not run";
    case RowResult::State::measured:
      return "measured";
    case RowResult::State::skipped:
      return "skipped";
    case RowResult::State::failed:
      return "failed";
  }
  return "unknown state";
}

const char* name_of(RowPlan::Role role) {
  switch (role) {
    case RowPlan::Role::kernel:
      return "kernel";
    case RowPlan::Role::baseline:
      return "baseline";
    case RowPlan::Role::self:
      return "self";
    case RowPlan::Role::ablation:
      return "ablation";
  }
  return "unknown role";
}

void write_measured(Writer& json, const Row& row) {
  const RowResult& r = row.result;
  json.key("kernel").value(r.kernel);
  json.key("threads").value(r.threads);
  json.key("clock").value(name_of(row.plan.clock));
  json.key("seconds").value(r.seconds);
  json.key("microseconds").value(r.seconds * 1e6);
  if (r.flops > 0) json.key("TFLOP/s").value(r.flops / r.seconds * 1e-12);
  if (r.bytes > 0) json.key("GB/s").value(r.bytes / r.seconds * 1e-9);
  if (!r.ceiling.empty()) {
    json.key("ceiling").value(r.ceiling);
    json.key("ceiling_per_second").value(r.ceiling_rate);
    json.key("of_ceiling").value(r.of_ceiling);
  }
  if (!r.ratios.empty()) {
    json.key("speed_against").open('{');
    for (const RowResult::Ratio& ratio : r.ratios) json.key(ratio.to).value(ratio.value);
    json.close('}');
  }
  if (r.bare) {
    json.key("bare_microseconds").value(r.bare->seconds * 1e6);
    json.key("over_microseconds").value(r.bare->over * 1e6);
    json.key("bare_seconds_per_call").value(r.bare->series.seconds_per_call);
  }
  json.key("calls_per_sample").value(static_cast<double>(r.series.calls_per_sample));
  json.key("seconds_per_call").value(r.series.seconds_per_call);
}

const char* role_of(const Group& group, const Row& row) {
  switch (group.kind) {
    case Group::Kind::ceilings:
      return "ceiling";
    case Group::Kind::host_costs:
      return "host_cost";
    case Group::Kind::problem:
      break;
  }
  return name_of(row.plan.role);
}

void write_row(Writer& json, const Group& group, const Row& row) {
  json.open('{');
  json.key("name").value(row.name);
  json.key("role").value(role_of(group, row));
  if (group.kind == Group::Kind::problem) json.key("problem").value(test::to_string(group.problem));
  if (row.dtype != Dtype::none) json.key("dtype").value(name_of(row.dtype));
  if (group.kind != Group::Kind::ceilings && row.plan.baseline.empty())
    json.key("version").value(name_of(row.plan.version));
  if (group.noise) json.key("noise").value(*group.noise);
  json.key("state").value(name_of(row.result.state));
  if (!row.result.reason.empty()) json.key("reason").value(row.result.reason);
  if (row.result.state == RowResult::State::measured) write_measured(json, row);
  json.close('}');
}

void write_group(Writer& json, const Group& group) {
  json.open('{');
  json.key("name").value(group.name);
  if (group.kind == Group::Kind::problem) {
    json.key("problem").value(test::to_string(group.problem));
    json.key("flops").value(group.problem.flops());
    json.key("input_copies").value(group.copies);
  }
  json.key("rows").open('[');
  for (const Row& row : group.rows) write_row(json, group, row);
  json.close(']');
  json.close('}');
}

void write_protocol(Writer& json, const Protocol& p) {
  json.open('{');
  json.key("name").value(p.name);
  json.key("warm_up_calls").value(static_cast<double>(p.warm_up_calls));
  json.key("warm_up_seconds").value(p.warm_up_seconds);
  json.key("warm_up_limit").value(p.warm_up_limit);
  json.key("sample_calls").value(static_cast<double>(p.sample_calls));
  json.key("sample_seconds").value(p.sample_seconds);
  json.key("settle_seconds").value(p.settle_seconds);
  json.key("repetitions").value(p.repetitions);
  json.key("series_limit").value(p.series_limit);
  json.close('}');
}

}  // namespace

void write_json(std::ostream& out, const Facts& facts, const Protocol& protocol,
                const std::vector<Group>& groups) {
  Writer json(out);
  json.open('{');
  json.key("facts").open('{');
  for (const auto& [name, value] : facts) json.key(name).value(value);
  json.close('}');
  json.key("protocol");
  write_protocol(json, protocol);
  json.key("groups").open('[');
  for (const Group& group : groups) {
    if (group.done) write_group(json, group);
  }
  json.close(']');
  json.close('}');
  out << '\n';
}

}  // namespace fa::bench
