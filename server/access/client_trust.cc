#include "server/access/client_trust.h"

#include <utility>

#include "server/access/tls_context.h"

namespace counterweight::server {

bool ClientTrust::Trusts(const std::shared_ptr<const TlsFiles>& files,
                         std::string_view certificate, std::string_view chain) {
  std::string key;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (files != files_) {
      has_changed_ |= files_ != nullptr;
      files_ = files;
      answers_.clear();
    }
    // Every handshake so far was with these authorities.
    if (!has_changed_) return true;
    key.append(certificate).append(chain);
    const auto known = answers_.find(key);
    if (known != answers_.end()) return known->second;
  }
  const bool answer = IsSignedBy(files->context.get(), certificate, chain);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (files == files_) {
    if (answers_.size() >= kMaxAnswers) answers_.clear();
    answers_.emplace(std::move(key), answer);
  }
  return answer;
}

}  // namespace counterweight::server
