#include <algorithm>

#include "server/engine/dialect.h"
#include "server/engine/dialects/areal.h"
#include "server/engine/dialects/ms_swift.h"
#include "server/engine/dialects/nemo_rl.h"
#include "server/engine/dialects/openrlhf.h"
#include "server/engine/dialects/prime_rl.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/roll.h"
#include "server/engine/dialects/skyrl.h"
#include "server/engine/dialects/slime.h"
#include "server/engine/dialects/tinker.h"
#include "server/engine/dialects/trl.h"
#include "server/engine/dialects/verl.h"

namespace counterweight::server {
namespace {

constexpr Dialect kDialects[] = {
    {"verl", kVerlReleases, TranslateVerl},
    {"trl", kTrlReleases, TranslateTrl},
    {"skyrl", kSkyrlReleases, TranslateSkyrl},
    {"openrlhf", kOpenrlhfReleases, TranslateOpenrlhf},
    {"slime", kSlimeReleases, TranslateSlime},
    {"miles", kMilesReleases, TranslateMiles},
    {"nemo_rl", kNemoRlReleases, TranslateNemoRl},
    {"ms_swift", kMsSwiftReleases, TranslateMsSwift},
    {"prime_rl", kPrimeRlReleases, TranslatePrimeRl},
    {"areal", kArealReleases, TranslateAreal},
    {"roll", kRollReleases, TranslateRoll},
    {"tinker", kTinkerReleases, TranslateTinker},
};

}  // namespace

std::span<const Dialect> Dialects() { return kDialects; }

const Dialect* FindDialect(std::string_view system,
                           std::span<const Dialect> dialects) {
  const auto dialect =
      std::find_if(dialects.begin(), dialects.end(),
                   [&](const Dialect& row) { return row.system == system; });
  return dialect == dialects.end() ? nullptr : &*dialect;
}

}  // namespace counterweight::server
