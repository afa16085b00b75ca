// Who may connect and call: the files of --tls_certificate, --tls_key,
// --tls_client_ca and --tokens, and what they allow.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_ACCESS_H_
#define COUNTERWEIGHT_SERVER_ACCESS_ACCESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/status.h"
#include "server/access/client_trust.h"
#include "server/access/tls_files.h"
#include "server/access/token_table.h"
#include "server/access/watched.h"
#include "server/base/ticker.h"
#include "server/config/config.h"
#include "server/log/report_pause.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// Looks at the files every second, and uses changed ones if they are right; see
// Watched. Thread-safe.
class Access {
 public:
  // The credentials of one call or scrape.
  struct Credentials {
    // The value of "authorization", unchanged; empty: none.
    std::string_view authorization;
    // Whether there are several values: a proxy may have checked another one.
    bool has_several = false;
    // False for what probes call.
    bool needs_token = true;
    // Whether the connection uses TLS, whether the client has a certificate
    // that was verified, and the subject alternative names in that.
    bool is_tls = false;
    bool has_certificate = false;
    std::vector<std::string_view> names;
    // The certificate, and those between it and its authority, in PEM; empty:
    // it was verified a moment ago.
    std::string_view certificate;
    std::string_view certificate_chain;
  };

  // Reads the files that `config` names. Fails with a sentence that names
  // flag and file if one is wrong. *log outlives this.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const Config& config,
                                                      RequestLog* log);
  // OK if they are right, or the error of Load. For the checks before anything
  // starts.
  static absl::Status CheckFiles(const Config& config);
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  bool has_tls() const { return tls_.has_value(); }
  bool has_tokens() const { return tokens_.has_value(); }
  // True if clients need a certificate.
  bool wants_certificates() const { return wants_certificates_; }

  // Returns OK, or the client's error, which it counts.
  grpc::Status Check(const Credentials& credentials);

  // The token in the value of "authorization"; null if there is none.
  std::shared_ptr<const TokenTable::Token> TokenIn(
      std::string_view authorization) const;

  // REQUIRES: has_tls().
  std::shared_ptr<const TlsFiles> tls() const { return tls_->Get(); }

  // For metrics.
  int64_t tls_expiry_unix_s() const { return tls()->expiry_unix_s; }
  bool are_tls_files_valid() const { return tls_->is_valid(); }
  bool is_token_file_valid() const { return tokens_->is_valid(); }
  int64_t refused() const { return refused_; }

 private:
  explicit Access(RequestLog* log) : log_(log) {}
  grpc::Status Judge(const Credentials& credentials);
  void Look();

  RequestLog* const log_;
  bool wants_certificates_ = false;
  std::vector<std::string>
      client_names_;  // empty: any that --tls_client_ca signed
  std::optional<Watched<TlsFiles>> tls_;
  ClientTrust trust_;
  std::optional<Watched<TokenTable>> tokens_;
  std::atomic<int64_t> refused_ = 0;
  std::mutex mutex_;  // guards report_
  ReportPause report_;
  std::optional<Ticker> ticker_;  // ends first
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_ACCESS_H_
