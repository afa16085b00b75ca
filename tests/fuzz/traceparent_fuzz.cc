// The metadata "traceparent".
//
// Input: its value.
//
// Checks: fields that are read are those of the text.
#include <algorithm>
#include <cstdint>
#include <string>

#include "server/log/traceparent.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

void CheckText(const std::string& text) {
  const auto read = server::ParseTraceparent(text);
  if (!read) return;
  Expect(text.size() >= 55 && text[2] == '-' && text[35] == '-' &&
             text[52] == '-' && text.substr(0, 2) != "ff",
         "what is read has the form of the specification", text);
  const std::string id = server::ToHex(read->trace_id);
  Expect(text.substr(3, 32) == id, "the id is that of the text", text);
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  Expect(!std::ranges::all_of(read->trace_id, is_zero) &&
             !std::ranges::all_of(read->parent_id, is_zero),
         "no id is zero", text);
  // Later versions may have more, which does not count.
  const auto again = server::ParseTraceparent("00" + text.substr(2, 53));
  Expect(again && again->trace_id == read->trace_id &&
             again->parent_id == read->parent_id &&
             again->is_sampled == read->is_sampled,
         "the first version's part says all", text);
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::CheckText({data, data + size});
  return 0;
}
