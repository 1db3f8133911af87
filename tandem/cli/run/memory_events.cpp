#include "tandem/cli/run/memory_events.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tandem::cli {
namespace {

constexpr std::array<std::string_view, 3> kWhats = {"allocate", "free", "move"};

}  // namespace

std::filesystem::path memory_events_file(int rank) {
  char name[48];
  std::snprintf(name, sizeof name, "memory_rank_%04d.jsonl", rank);
  return name;
}

std::string memory_events_text(std::span<const memory::Event> events) {
  std::string text;
  for (const auto& event : events) {
    const nlohmann::ordered_json line = {{"seconds", event.seconds - events.front().seconds},
                                         {"step", event.step},
                                         {"phase", kPhaseNames[static_cast<size_t>(event.phase)]},
                                         {"what", kWhats[static_cast<size_t>(event.what)]},
                                         {"number", event.number},
                                         {"bytes", event.bytes},
                                         {"live", event.live},
                                         {"category", kCategoryNames[static_cast<size_t>(event.category)]},
                                         {"block", block_name(event.block)}};
    text += line.dump() + '\n';
  }
  return text;
}

}  // namespace tandem::cli
