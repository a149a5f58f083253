#include "placement.h"

#include <charconv>
#include <fstream>
#include <string>

#include "placement_meter.h"

namespace omni::simulation {
namespace {

double number(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Duration seconds(std::string_view text) {
  return std::chrono::round<Duration>(Seconds(number(text)));
}

}  // namespace

std::vector<Arrival> read_arrivals(const std::filesystem::path& path) {
  std::vector<Arrival> arrivals;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::size_t first = line.find(',');
    const std::size_t second = line.find(',', first + 1);
    if (second == std::string::npos) return {};
    const std::string_view text = line;
    arrivals.push_back({seconds(text.substr(0, first)),
                        static_cast<std::uint32_t>(number(text.substr(first + 1, second - first))),
                        seconds(text.substr(second + 1))});
  }
  return arrivals;
}

std::string_view to_string(Policy policy) {
  constexpr std::string_view kNames[] = {"omni", "omni_evict", "lru", "fifo"};
  return kNames[static_cast<std::size_t>(policy)];
}

Figures play(const std::vector<Arrival>& arrivals, const Machine& machine, Policy policy) {
  switch (policy) {
    case Policy::omni:
      return play_omni(arrivals, machine, false);
    case Policy::omni_evict:
      return play_omni(arrivals, machine, true);
    case Policy::lru:
      return play_lru(arrivals, machine);
    case Policy::fifo:
      return play_fifo(arrivals, machine);
  }
  return {};
}

}  // namespace omni::simulation
