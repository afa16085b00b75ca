// Other systems' own blocks for the methods of the methods table.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_EQUIVALENTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_EQUIVALENTS_H_

#include <string_view>
#include <vector>

namespace counterweight::server {

// A system's block for a method with default parameters.
struct Equivalent {
  std::string_view method;  // a row of kernels::Methods()
  std::string_view block;   // JSON, as the system's dialect takes it
  // Differences of its weights, mask, loss or gradient, each completing the
  // sentence "the same, but ...". Empty: equal byte for byte for every input.
  std::vector<std::string_view> differences{};
  std::string_view system{};  // a dialect; EquivalentsOf fills it
};

// Rows of one system, at most one for each method, in the order of the methods
// table.
std::vector<Equivalent> VerlEquivalents();
std::vector<Equivalent> TrlEquivalents();
std::vector<Equivalent> SkyrlEquivalents();
std::vector<Equivalent> OpenrlhfEquivalents();
std::vector<Equivalent> SlimeEquivalents();
std::vector<Equivalent> MilesEquivalents();
std::vector<Equivalent> NemoRlEquivalents();
std::vector<Equivalent> MsSwiftEquivalents();
std::vector<Equivalent> ArealEquivalents();
std::vector<Equivalent> RollEquivalents();

// Those of one method, by system in the order above.
std::vector<Equivalent> EquivalentsOf(std::string_view method);

// Differences that several rows share.
namespace differences {

inline constexpr std::string_view kUnclamped =
    "its log ratios are not clamped at 20 nats";
inline constexpr std::string_view kAllRows =
    "it divides by all rows, empty ones included";
inline constexpr std::string_view kEmptyRowIsToken =
    "an empty row counts as a token";
inline constexpr std::string_view kReciprocals =
    "its bounds are those of k1, which is minus the log ratio, so "
    "they are the reciprocals of these, as far as decimals can say so";
inline constexpr std::string_view kClamped = "it clamps log ratios at 20 nats";
inline constexpr std::string_view kClampedAggregate =
    "it clamps the row's aggregate at 20 nats, not each token's log "
    "ratio";
inline constexpr std::string_view kCappedMean =
    "it caps the mean log ratio at 10 nats";
inline constexpr std::string_view kTokenGradient =
    "its gradient is that of gspo_token, which is another number "
    "where the advantages of a row differ and another rounding where "
    "they do not";
inline constexpr std::string_view kClampedTokens =
    "it clamps each token's log ratio at 20 nats, not the row's "
    "aggregate";

}  // namespace differences

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_EQUIVALENTS_H_
