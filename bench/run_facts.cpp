#include "bench/run_facts.hpp"

#include <sys/utsname.h>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <flashattn/flashattn.h>

#include "bench/git_commit.hpp"  // made by the build

namespace fa::bench {

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname name = {};
  return uname(&name) == 0 ? name.machine : "unknown";
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

std::string load() {
  double averages[1] = {};
  if (getloadavg(averages, 1) != 1) return "unknown";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", averages[0]);
  return text;
}

std::string command_line(int argc, char** argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const bool quote = word.find_first_of(" '\"$*|&;<>()") != std::string::npos;
    line += (i > 0 ? " " : "") + (quote ? "'" + word + "'" : word);
  }
  return line;
}

std::string library() {
  fa_build_info info = {};
  info.size = sizeof info;
  if (fa_build_info_get(&info) != FA_OK) throw std::runtime_error(fa_last_error());
  std::string text = std::string("flashattn ") + fa_version_string() + ", " + info.build_type + ", " +
                     info.compiler + ", SIMD " + info.simd + " as " + info.simd_target;
  if (info.cuda == 0) return text + ", without CUDA";
  return text + ", CUDA " + std::to_string(info.cuda / 1000) + "." + std::to_string(info.cuda % 1000 / 10) +
         " for " + info.architectures;
}

}  // namespace

Facts run_facts(int argc, char** argv) {
  return {
      {"library", library()},
      {"commit", FLASHATTN_GIT_COMMIT},
      {"cpu", cpu_model() + ", " + std::to_string(std::thread::hardware_concurrency()) + " hardware threads"},
      {"load average", load()},
      {"date", date()},
      {"command", command_line(argc, argv)}};
}

}  // namespace fa::bench
