#include <string>
#include <string_view>
#include <vector>

#include "server/engine/names.h"
#include "tests/server/dialects/system_blocks.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kBlocksHead = R"(
## A block for each system

A block is the system's own configuration, and `cw.Dialect("SYSTEM", BLOCK)` in Python; bounds are starting points, which
`counterweight suggest` replaces by those of recorded batches. Costs are of inputs in float32, with all metrics; times are in
[RESULTS.md](../../../tests/benchmark/RESULTS.md). Beside the metrics that the answer has under the system's names, the server's
`counterweight_drift_k3_nats` and `counterweight_drift_weight_outside_ratio` ([METRICS.md](../../METRICS.md)) are there for
every system; `counterweight doctor` reads them.
)";

std::string Names(const std::vector<std::string_view>& names) {
  std::string page;
  for (const std::string_view name : names) {
    page += Concat(page.empty() ? "`" : ", `", name, "`");
  }
  return page;
}

// A function in backquotes; words with backquotes of their own stay.
std::string Code(std::string_view text) {
  return text.find(' ') == std::string_view::npos ? Concat("`", text, "`")
                                                  : std::string(text);
}

}  // namespace

std::string SystemSections() {
  std::string page(kBlocksHead);
  for (const SystemBlock& block : SystemBlocks()) {
    page += Concat("\n### ", block.system, ": the block\n\n```json\n",
                   block.json, "\n```\n\n- **What changes**: ");
    page += Concat("`", block.function, "` in place of ", Code(block.replaced),
                   "; ", block.how, ".\n- **What it costs**: ", CostOf(block),
                   "\n- **What to watch**: ", Names(block.watched));
    page += ".\n";
  }
  return page;
}

}  // namespace counterweight::server
