/// The capability matrix as Markdown, from the kernel table.
///
///     capability_matrix                     prints it
///     capability_matrix --check README.md   compares it with the block between the markers; 1: they differ
///     capability_matrix --write README.md   puts it there
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace {

constexpr const char* kBegin = "<!-- capability matrix: begin -->\n";
constexpr const char* kEnd = "<!-- capability matrix: end -->";

// The rows of one version and pass that say the same are one line.
struct Line {
  fa_pass pass;
  fa_version version;
  std::string limits, stand_in;
  bool has[3] = {false, false, false};  // float32, float16, bfloat16
};

std::vector<Line> lines() {
  std::vector<Line> all;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    if (fa_kernel_info_get(i, &info) != FA_OK) throw std::runtime_error(fa_last_error());
    const std::string stand_in = info.stand_in == nullptr ? "" : info.stand_in;
    Line* line = nullptr;
    for (Line& other : all) {
      const bool same = other.pass == info.pass && other.version == info.version &&
                        other.limits == info.limits && other.stand_in == stand_in;
      if (same) line = &other;
    }
    if (line == nullptr) line = &all.emplace_back(Line{info.pass, info.version, info.limits, stand_in});
    line->has[info.dtype - FA_FLOAT32] = true;
  }
  return all;
}

std::string matrix() {
  std::string text = "| version | pass | float32 | float16 | bfloat16 | takes |\n|---|---|---|---|---|---|\n";
  for (const Line& line : lines()) {
    text += std::string("| `fa::") + fa::name_of(static_cast<fa::Version>(line.version)) + "` | " +
            (line.pass == FA_PASS_FORWARD ? "forward" : "backward");
    for (const bool has : line.has) text += has ? " | yes" : " | –";
    text += " | " + line.limits;
    if (!line.stand_in.empty()) text += "; the rest goes to `" + line.stand_in + "`";
    text += " |\n";
  }
  return text;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int run(const std::vector<std::string>& arguments) {
  const std::string want = matrix();
  if (arguments.empty()) {
    std::cout << want;
    return 0;
  }
  if (arguments.size() != 2 || (arguments[0] != "--check" && arguments[0] != "--write")) {
    std::cerr << "usage: capability_matrix [--check FILE | --write FILE]\n";
    return 2;
  }
  const std::string& path = arguments[1];
  std::string text = read(path);
  const std::size_t begin = text.find(kBegin);
  const std::size_t first = begin + std::string(kBegin).size();
  const std::size_t end = begin == std::string::npos ? begin : text.find(kEnd, first);
  if (end == std::string::npos) throw std::runtime_error(path + " lacks the lines\n" + kBegin + kEnd);
  const std::string got = text.substr(first, end - first);
  if (got == want) return 0;
  if (arguments[0] == "--check") {
    std::cerr << path << " has\n\n"
              << got << "\nbut the kernel table says\n\n"
              << want << "\nrun capability_matrix --write " << path << "\n";
    return 1;
  }
  text.replace(first, end - first, want);
  std::ofstream(path, std::ios::binary) << text;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
}
