#include "server/engine/dialects/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> EquivalentsOf(std::string_view method) {
  static const std::vector<Equivalent> all = [] {
    std::vector<Equivalent> rows;
    for (const auto system : {VerlEquivalents, TrlEquivalents, SkyrlEquivalents,
                              OpenrlhfEquivalents}) {
      for (const Equivalent& row : system()) rows.push_back(row);
    }
    return rows;
  }();
  std::vector<Equivalent> found;
  for (const Equivalent& row : all) {
    if (row.method == method) found.push_back(row);
  }
  return found;
}

}  // namespace counterweight::server
