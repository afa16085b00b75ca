// The file of --tokens.
//
// Input: its text.
//
// Checks: errors name a line; only tokens of the file are found.
#include <cstdint>
#include <string>

#include "server/access/token_table.h"
#include "server/base/config_error.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

// Seeds have the first one's line.
constexpr const char* kKnown = "seed-token-0123456789";
constexpr const char* kUnknown = "another-token-0123456789";

void CheckText(const std::string& text) {
  const auto table = server::TokenTable::Parse(text);
  if (!table.ok()) {
    const std::string message = server::MessageOf(table.status());
    Expect(message.starts_with("line ") || message.starts_with("it has no"),
           "an error says which line is wrong", message);
    return;
  }
  Expect((*table)->Find(kUnknown) == nullptr && (*table)->Find("") == nullptr,
         "a token that is not there is not found");
  const server::TokenTable::Token* const found = (*table)->Find(kKnown);
  if (found == nullptr) {
    const auto line = server::TokenLine("added", kKnown);
    const auto more = server::TokenTable::Parse(text + "\n" + *line);
    const auto* const added = more.ok() ? (*more)->Find(kKnown) : nullptr;
    Expect(added != nullptr && added->name == "added",
           "a line that --hash_token prints can be added");
  } else {
    Expect(text.find(found->name) != std::string::npos, "a name is the file's");
    Expect(!server::TokenTable::Parse(text + "\n" + text).ok(),
           "no token is there twice");
  }
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::CheckText({data, data + size});
  return 0;
}
