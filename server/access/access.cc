#include "server/access/access.h"

#include <strings.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/config_error.h"

namespace counterweight::server {
namespace {

constexpr std::chrono::seconds kLookPeriod{1};

// The token of "Bearer TOKEN"; empty if there is none. The scheme's case does
// not count (RFC 9110).
std::string_view TokenOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return "";
  }
  authorization.remove_prefix(kScheme.size());
  const size_t begin = authorization.find_first_not_of(' ');
  return begin == std::string_view::npos ? "" : authorization.substr(begin);
}

// DNS names have no case.
bool SameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

TlsPaths PathsOf(const Config& config) {
  return {.certificate = config.tls_certificate,
          .key = config.tls_key,
          .client_ca = config.tls_client_ca};
}

}  // namespace

absl::Status Access::CheckFiles(const Config& config) {
  if (!config.tls_certificate.empty()) {
    absl::Status status = LoadTlsFiles(PathsOf(config)).status();
    if (!status.ok()) return status;
  }
  return config.tokens.empty() ? absl::OkStatus()
                               : LoadTokens(config.tokens).status();
}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(const Config& config,
                                                     RequestLog* log) {
  std::unique_ptr<Access> access(new Access(log));
  if (!config.tls_certificate.empty()) {
    const TlsPaths paths = PathsOf(config);
    std::vector<std::string> watched = {paths.certificate, paths.key};
    if (!paths.client_ca.empty()) watched.push_back(paths.client_ca);
    access->wants_certificates_ = !paths.client_ca.empty();
    access->client_names_ = config.tls_client_names;
    access->tls_.emplace(
        "tls", std::move(watched), [paths] { return LoadTlsFiles(paths); },
        log);
    absl::Status status = access->tls_->Start();
    if (!status.ok()) return status;
  }
  if (!config.tokens.empty()) {
    access->tokens_.emplace(
        "tokens", std::vector{config.tokens},
        [path = config.tokens] { return LoadTokens(path); }, log);
    absl::Status status = access->tokens_->Start();
    if (!status.ok()) return status;
  }
  if (access->has_tls() || access->has_tokens()) {
    access->ticker_.emplace(kLookPeriod,
                            [self = access.get()] { self->Look(); });
  }
  return access;
}

void Access::Look() {
  if (tls_) tls_->Look();
  if (tokens_) tokens_->Look();
}

grpc::Status Access::Check(const Credentials& credentials) {
  grpc::Status status = Judge(credentials);
  if (status.ok()) return status;
  refused_ += 1;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!report_.IsDue(std::chrono::steady_clock::now())) return status;
  }
  log_->Event(spdlog::level::warn, "access_refused",
              {{"error", status.error_message()}});
  return status;
}

grpc::Status Access::Judge(const Credentials& credentials) {
  // gRPC ends the handshake of such a client; the metrics port answers it.
  if (credentials.is_tls && wants_certificates_ &&
      !credentials.has_certificate) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            "this server wants a certificate of the client (--tls_client_ca)"};
  }
  if (credentials.is_tls && !client_names_.empty() &&
      std::none_of(client_names_.begin(), client_names_.end(),
                   [&](const std::string& allowed) {
                     return std::any_of(credentials.names.begin(),
                                        credentials.names.end(),
                                        [&](std::string_view name) {
                                          return SameName(name, allowed);
                                        });
                   })) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            "the client's certificate has no subject alternative name that "
            "this server allows (--tls_client_names)"};
  }
  if (!credentials.certificate.empty() &&
      !trust_.Trusts(tls(), credentials.certificate,
                     credentials.certificate_chain)) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            "the authority of the client's certificate is no longer one of "
            "this server's (--tls_client_ca)"};
  }
  if (!tokens_ || !credentials.needs_token) return grpc::Status::OK;
  if (credentials.has_several) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "the call has several 'authorization' entries; send one"};
  }
  const std::string_view token = TokenOf(credentials.authorization);
  if (token.empty()) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "this server wants a token: send 'authorization: Bearer TOKEN'"};
  }
  if (tokens_->Get()->Find(token) == nullptr) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            "the token is none of this server's; perhaps it was replaced"};
  }
  return grpc::Status::OK;
}

std::shared_ptr<const TokenTable::Token> Access::TokenIn(
    std::string_view authorization) const {
  if (!tokens_) return nullptr;
  const std::string_view text = TokenOf(authorization);
  if (text.empty()) return nullptr;
  const std::shared_ptr<const TokenTable> table = tokens_->Get();
  const TokenTable::Token* const token = table->Find(text);
  // Shares the table, which a changed file replaces.
  return token == nullptr
             ? nullptr
             : std::shared_ptr<const TokenTable::Token>(table, token);
}

}  // namespace counterweight::server
