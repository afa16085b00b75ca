// Who may call, by bearer tokens: the file of --tokens.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_TOKEN_TABLE_H_
#define COUNTERWEIGHT_SERVER_ACCESS_TOKEN_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/run_patterns.h"

namespace counterweight::server {

// SHA-256. Tokens are random, so that a hash without salt reveals nothing.
using TokenHash = std::array<uint8_t, 32>;

// The tokens that a file names. Immutable.
class TokenTable {
 public:
  struct Token {
    std::string name;
    TokenHash hash;
    RunPatterns runs;
  };

  // Reads lines "name sha256:HEX" and "name sha256:HEX runs=PATTERNS", with
  // RunPatterns; empty lines and lines that begin with # are skipped. A name
  // has 1 to 64 of [A-Za-z0-9._-]; several tokens may have the same one. Fails
  // with the end of a sentence that has the line's number if a line is wrong or
  // none has a token.
  static absl::StatusOr<std::shared_ptr<const TokenTable>> Parse(
      std::string_view text);

  // Null if `token` is none of the table's. Takes the same time for any token
  // of the same length. Valid as long as this.
  const Token* Find(std::string_view token) const;

 private:
  std::vector<Token> entries_;
};

// Reads the file of --tokens. Fails with a sentence if it is wrong.
absl::StatusOr<std::shared_ptr<const TokenTable>> LoadTokens(
    const std::string& path);

// Returns the line of a file of tokens for `token`, without its end. Fails with
// a sentence if the token or the name is not fit.
absl::StatusOr<std::string> TokenLine(std::string_view name,
                                      std::string_view token);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_TOKEN_TABLE_H_
