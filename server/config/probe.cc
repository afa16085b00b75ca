#include "server/config/probe.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/version_info.h"
#include "server/base/blocking_call.h"
#include "server/base/code_name.h"
#include "server/base/config_error.h"
#include "server/base/monotonic.h"
#include "server/base/small_file.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// grpc.health.v1.HealthCheckResponse.ServingStatus.
constexpr int kServing = 1;

constexpr std::string_view kUnix = "unix:";

std::string StatusName(int status) {
  switch (status) {
    case 0:
      return "UNKNOWN";
    case kServing:
      return "SERVING";
    case 2:
      return "NOT_SERVING";
    case 3:
      return "SERVICE_UNKNOWN";
    default:
      return std::to_string(status);
  }
}

// Null, and *error a sentence, if the files are wrong.
std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(
    const ProbeRequest& request, std::string* error) {
  if (request.certificate.empty() || request.target.starts_with(kUnix)) {
    return grpc::InsecureChannelCredentials();
  }
  std::string certificate;
  std::string key;
  const std::tuple<std::string_view, const std::string&, std::string*> files[] =
      {{"tls_certificate", request.certificate, &certificate},
       {"tls_key", request.key, &key}};
  for (const auto& [flag, path, text] : files) {
    absl::StatusOr<std::string> read = ReadSmallFile(path);
    if (!read.ok()) {
      *error = fmt::format("--{}={}: {}", flag, path, MessageOf(read.status()));
      return nullptr;
    }
    *text = *std::move(read);
  }
  namespace tls = grpc::experimental;
  tls::TlsChannelCredentialsOptions options;
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 83
  options.set_certificate_provider(
      std::make_shared<tls::StaticDataCertificateProvider>(
          certificate,
          std::vector<tls::IdentityKeyCertPair>{{key, certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
#else
  const auto provider = std::make_shared<tls::InMemoryCertificateProvider>();
  absl::Status taken = provider->UpdateRoot(certificate);
  taken.Update(provider->UpdateIdentityKeyCertPair(
      std::vector<tls::IdentityKeyOrSignerCertPair>{{key, certificate}}));
  if (!taken.ok()) {
    *error =
        fmt::format("--tls_certificate and --tls_key: {}", MessageOf(taken));
    return nullptr;
  }
  options.set_root_certificate_provider(provider);
  options.set_identity_certificate_provider(provider);
#endif
  // The certificate is the server's own, whatever name the target has.
  options.set_certificate_verifier(
      std::make_shared<tls::NoOpCertificateVerifier>());
  options.set_check_call_host(false);
  return tls::TlsCredentials(options);
}

}  // namespace

std::string CheckProbeTarget(std::string_view target) {
  constexpr const char* kWrong =
      "must be host:port, [ipv6]:port or unix:path, such as 127.0.0.1:50051";
  if (target.starts_with(kUnix)) {
    return target.size() > kUnix.size() ? "" : kWrong;
  }
  const size_t colon = target.rfind(':');
  if (colon == target.npos || colon == 0) return kWrong;
  const std::string_view host = target.substr(0, colon);
  const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
  if (!is_bracketed && host.find_first_of(":/[]") != host.npos) return kWrong;
  const char* const end = target.data() + target.size();
  uint16_t port = 0;
  const auto read = std::from_chars(target.data() + colon + 1, end, port);
  if (read.ec != std::errc() || read.ptr != end || port == 0) return kWrong;
  return "";
}

bool Probe(const ProbeRequest& request, std::string* sentence) {
  const std::string& target = request.target;
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      MakeCredentials(request, sentence);
  if (credentials == nullptr) return false;
  grpc::ChannelArguments arguments;
  // A probe is about this server and not about a proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel =
      grpc::CreateCustomChannel(target, credentials, arguments);
  grpc::ClientContext context;
  context.set_deadline(After(std::chrono::duration<double>(request.timeout_s)));
  // HealthCheckRequest and -Response are, on the wire, a string and an enum
  // with number 1, just as these wrappers.
  const google::protobuf::StringValue whole_server;
  google::protobuf::Int32Value health;
  const grpc::Status status = BlockingCall(
      channel, "/grpc.health.v1.Health/Check", &context, whole_server, &health);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    *sentence =
        fmt::format("{} did not answer within {} s", target, request.timeout_s);
    return false;
  }
  if (!status.ok()) {
    *sentence =
        fmt::format("{} did not tell its health: {}: {}", target,
                    CodeName(status.error_code()), status.error_message());
    return false;
  }
  *sentence = fmt::format("{} is {}", target, StatusName(health.value()));
  return health.value() == kServing;
}

}  // namespace counterweight::server
