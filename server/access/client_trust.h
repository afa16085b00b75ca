// Client certificates on connections that are older than the authorities.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_CLIENT_TRUST_H_
#define COUNTERWEIGHT_SERVER_ACCESS_CLIENT_TRUST_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/access/tls_files.h"

namespace counterweight::server {

// A handshake verifies a certificate once, and its connection may last for
// --max_connection_age; calls on it are to end sooner if the authority is
// removed. Remembers answers, because each call needs one. Thread-safe.
class ClientTrust {
 public:
  static constexpr size_t kMaxAnswers = 4096;

  // True if an authority of `files` signed the certificate (PEM), directly or
  // through `chain`. Dates are left to the handshake. Costs next to nothing
  // while `files` are those of the first call.
  bool Trusts(const std::shared_ptr<const TlsFiles>& files,
              std::string_view certificate, std::string_view chain);

 private:
  std::mutex mutex_;                       // guards all below
  std::shared_ptr<const TlsFiles> files_;  // of the answers
  bool has_changed_ = false;               // other files preceded these
  std::map<std::string, bool, std::less<>> answers_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_CLIENT_TRUST_H_
