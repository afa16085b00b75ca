#include "server/access/token_table.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "openssl/crypto.h"
#include "openssl/sha.h"
#include "server/base/config_error.h"
#include "server/base/small_file.h"
#include "spdlog/fmt/fmt.h"
#include "spdlog/fmt/ranges.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kRunsPrefix = "runs=";
constexpr std::string_view kBlank = " \t\r";
constexpr size_t kMaxNameBytes = 64;
// A short token could be guessed from its hash.
constexpr size_t kMinTokenBytes = 16;
// Far below gRPC's limit of 8 KiB for all metadata of a call.
constexpr size_t kMaxTokenBytes = 4096;

TokenHash HashOf(std::string_view token) {
  TokenHash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         hash.data());
  return hash;
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
         });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool ParseHash(std::string_view text, TokenHash* hash) {
  if (!text.starts_with(kHashPrefix)) return false;
  text.remove_prefix(kHashPrefix.size());
  if (text.size() != 2 * hash->size()) return false;
  for (size_t i = 0; i < hash->size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    const auto read = std::from_chars(digits, digits + 2, (*hash)[i], 16);
    if (read.ec != std::errc() || read.ptr != digits + 2) return false;
  }
  return true;
}

// Takes the first word of trimmed text, and the blanks behind it.
std::string_view TakeWord(std::string_view* text) {
  const size_t end = std::min(text->find_first_of(kBlank), text->size());
  const std::string_view word = text->substr(0, end);
  *text = Trimmed(text->substr(end));
  return word;
}

// Reads "runs=PATTERNS".
bool ParseRuns(std::string_view text, RunPatterns* runs) {
  if (!text.starts_with(kRunsPrefix)) return false;
  return RunPatterns::Parse(text.substr(kRunsPrefix.size()), runs);
}

constexpr std::string_view kNameRule =
    "a name has 1 to 64 letters, digits, '.', '_' and '-'";

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenTable>> TokenTable::Parse(
    std::string_view text) {
  auto table = std::make_shared<TokenTable>();
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    number += 1;
    if (line.empty() || line.starts_with('#')) continue;
    std::string_view rest = line;
    Token entry{.name = std::string(TakeWord(&rest)), .hash = {}, .runs = {}};
    const std::string_view hash = TakeWord(&rest);
    std::string_view wrong;
    if (!IsName(entry.name)) {
      wrong = kNameRule;
    } else if (!ParseHash(hash, &entry.hash) ||
               (!rest.empty() && !ParseRuns(rest, &entry.runs))) {
      wrong =
          "after the name comes 'sha256:' with 64 hexadecimal digits, as "
          "counterweight-server --hash_token prints them, and then nothing or "
          "'runs=' with 1 to 64 patterns of run names, separated by commas "
          "without blanks: 1 to 64 letters, digits, '.', '_', '-' and '*', "
          "which stands for any text";
    } else if (std::any_of(table->entries_.begin(), table->entries_.end(),
                           [&](const Token& other) {
                             return other.hash == entry.hash;
                           })) {
      wrong = "the token is there already, in a line before";
    }
    if (!wrong.empty()) {
      return ConfigError(fmt::format("line {}: {}", number, wrong));
    }
    table->entries_.push_back(std::move(entry));
  }
  if (table->entries_.empty()) {
    return ConfigError("it has no token, so no client could call");
  }
  return std::shared_ptr<const TokenTable>(std::move(table));
}

const TokenTable::Token* TokenTable::Find(std::string_view token) const {
  const TokenHash hash = HashOf(token);
  const Token* found = nullptr;
  for (const Token& entry : entries_) {
    if (CRYPTO_memcmp(hash.data(), entry.hash.data(), hash.size()) == 0) {
      found = &entry;
    }
  }
  return found;
}

absl::StatusOr<std::shared_ptr<const TokenTable>> LoadTokens(
    const std::string& path) {
  const auto wrong = [&](const absl::Status& status) {
    return ConfigError(fmt::format("--tokens={}: {}", path, MessageOf(status)));
  };
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) return wrong(text.status());
  absl::StatusOr<std::shared_ptr<const TokenTable>> table =
      TokenTable::Parse(*text);
  if (!table.ok()) return wrong(table.status());
  return table;
}

absl::StatusOr<std::string> TokenLine(std::string_view name,
                                      std::string_view token) {
  if (!IsName(name)) {
    return ConfigError(fmt::format("--hash_token={}: {}", name, kNameRule));
  }
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes ||
      !std::all_of(token.begin(), token.end(),
                   [](char c) { return c > ' ' && c <= '~'; })) {
    return ConfigError(fmt::format(
        "--hash_token: a token on stdin has {} to {} visible ASCII characters, "
        "without blanks; 'openssl rand -hex 32' makes one",
        kMinTokenBytes, kMaxTokenBytes));
  }
  return fmt::format("{} {}{:02x}", name, kHashPrefix,
                     fmt::join(HashOf(token), ""));
}

}  // namespace counterweight::server
