#include "server/engine/equivalents.h"

#include <utility>

namespace counterweight::server {

std::vector<Equivalent> EquivalentsOf(std::string_view method) {
  static const std::vector<Equivalent> all = [] {
    std::vector<Equivalent> rows;
    const auto add = [&](std::string_view system,
                         std::vector<Equivalent> table) {
      for (Equivalent& row : table) {
        row.system = system;
        rows.push_back(std::move(row));
      }
    };
    add("verl", VerlEquivalents());
    add("trl", TrlEquivalents());
    add("skyrl", SkyrlEquivalents());
    add("openrlhf", OpenrlhfEquivalents());
    add("slime", SlimeEquivalents());
    add("miles", MilesEquivalents());
    add("nemo_rl", NemoRlEquivalents());
    add("ms_swift", MsSwiftEquivalents());
    add("areal", ArealEquivalents());
    add("roll", RollEquivalents());
    return rows;
  }();
  std::vector<Equivalent> found;
  for (const Equivalent& row : all) {
    if (row.method == method) found.push_back(row);
  }
  return found;
}

}  // namespace counterweight::server
