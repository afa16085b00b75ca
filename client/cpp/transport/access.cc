#include "client/cpp/transport/access.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "client/cpp/transport/connections.h"
#include "client/cpp/transport/identity.h"
#include "client/cpp/transport/target.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace counterweight::client {
namespace {

// How often gRPC looks at the files of TLS.
constexpr unsigned int kRefreshSeconds = 5;

// False for pipes and devices too, on which a call would wait.
bool ReadFile(const std::string& path, std::string* text) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  text->assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof();
}

bool IsToken(std::string_view token) {
  return !token.empty() && std::all_of(token.begin(), token.end(), [](char c) {
    return c > ' ' && c <= '~';
  });
}

// The file's token; empty if it has none.
std::string ReadToken(const std::string& path) {
  std::string text;
  if (!ReadFile(path, &text)) return "";
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return "";
  text = text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
  return IsToken(text) ? text : "";
}

constexpr char kTargets[] =
    "; targets are HOST:PORT, dns:///HOST:PORT, unix:/PATH, and lists "
    "ipv4:IP:PORT,IP:PORT";

bool IsEncrypted(const Options& options) {
  return options.tls || options.credentials != nullptr;
}

bool HasToken(const Options& options) {
  return !options.token.empty() || !options.token_file.empty();
}

// Recent gRPC has a provider for each of the two, and deprecates the other way.
template <class TlsOptions, class Provider>
void Watch(const std::shared_ptr<Provider>& provider, bool roots, bool identity,
           TlsOptions* options) {
  if constexpr (requires {
                  options->set_root_certificate_provider(provider);
                }) {
    if (roots) options->set_root_certificate_provider(provider);
    if (identity) options->set_identity_certificate_provider(provider);
  } else {
    options->set_certificate_provider(provider);
    if (roots) options->watch_root_certs();
    if (identity) options->watch_identity_key_cert_pairs();
  }
}

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(
    const TlsFiles& files) {
  namespace tls = grpc::experimental;
  tls::TlsChannelCredentialsOptions options;
  const bool has_roots = !files.root_certificates.empty();
  const bool has_identity = !files.certificate.empty();
  if (has_roots || has_identity) {
    Watch(std::make_shared<tls::FileWatcherCertificateProvider>(
              files.key, files.certificate, files.root_certificates,
              kRefreshSeconds),
          has_roots, has_identity, &options);
  }
  return tls::TlsCredentials(options);
}

void ValidateTls(const Options& options,
                 std::vector<FieldViolation>* violations) {
  const TlsFiles& files = *options.tls;
  if (options.credentials != nullptr) {
    violations->push_back(
        {"options.tls", "must be absent where options.credentials are given"});
  }
  if (files.certificate.empty() != files.key.empty()) {
    violations->push_back(
        {"options.tls", "certificate and key need each other"});
  }
  for (const auto& [name, path] :
       {std::pair("root_certificates", &files.root_certificates),
        std::pair("certificate", &files.certificate),
        std::pair("key", &files.key)}) {
    std::string text;
    if (path->empty() || (ReadFile(*path, &text) &&
                          text.find("-----BEGIN ") != std::string::npos)) {
      continue;
    }
    violations->push_back(
        {std::string("options.tls.") + name,
         "the file " + *path + " cannot be read, or has no PEM"});
  }
}

}  // namespace

Status ValidateAccess(const std::string& target, const Options& options) {
  std::vector<FieldViolation> violations;
  Target parsed;
  const std::string malformed = ParseTarget(target, &parsed);
  if (!malformed.empty()) {
    violations.push_back(
        {"target", "\"" + target + "\" " + malformed + kTargets});
  }
  if (options.tls) ValidateTls(options, &violations);
  if (!options.token.empty() && !options.token_file.empty()) {
    violations.push_back(
        {"options.token", "must be empty where token_file is given"});
  }
  if (!options.token.empty() && !IsToken(options.token)) {
    violations.push_back(
        {"options.token", "must have visible ASCII characters, and no blanks"});
  }
  if (!options.token_file.empty() && ReadToken(options.token_file).empty()) {
    violations.push_back(
        {"options.token_file", "the file " + options.token_file +
                                   " cannot be read, or has no token"});
  }
  if (malformed.empty() && HasToken(options) && !IsEncrypted(options) &&
      !options.allow_insecure_token && !StaysHere(parsed)) {
    violations.push_back(
        {"options.token", "could be read on its way to " + target +
                              ", as nothing is encrypted: set options.tls, or "
                              "options.allow_insecure_token"});
  }
  return violations.empty() ? Status{} : InvalidArgument(std::move(violations));
}

Endpoint Connect(const std::string& target, const Options& options) {
  Target parsed;
  ParseTarget(target, &parsed);
  const auto connections = std::make_shared<Connections>();
  grpc::ChannelArguments arguments = MakeChannelArguments();
  Connections::Watch(connections, &arguments);
  // A proxy would take local addresses for its own, and could read what TLS
  // does not protect.
  if (MayStayHere(parsed) || IsList(parsed) ||
      (HasToken(options) && !IsEncrypted(options))) {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // Since gRPC 1.65, a proxy by address.
    arguments.SetString("grpc.address_http_proxy_enabled_addresses", "");
  }
  if (IsList(parsed) || parsed.scheme == "dns") {
    // A headless Service's name, for example; gRPC would use one address only.
    arguments.SetServiceConfigJSON(
        R"({"loadBalancingConfig":[{"round_robin":{}}]})");
  }
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(options.keepalive_interval.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(options.keepalive_timeout.count()));
  // Since gRPC 1.58, for pings that measure the bandwidth; keepalive waits
  // behind them.
  arguments.SetInt("grpc.http2.ping_timeout_ms",
                   static_cast<int>(options.keepalive_timeout.count()));
  // By default gRPC 1.51 stops after two pings until it has sent data, but an
  // answer may take long to compute.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials = options.credentials;
  if (options.tls) {
    credentials = MakeCredentials(*options.tls);
    if (!options.tls->server_name.empty()) {
      arguments.SetSslTargetNameOverride(options.tls->server_name);
    }
  } else if (credentials == nullptr) {
    credentials = grpc::InsecureChannelCredentials();
  }
  return {grpc::CreateCustomChannel(parsed.text, credentials, arguments),
          connections, options.service};
}

Status AddToken(const Options& options, grpc::ClientContext* context) {
  std::string token = options.token;
  if (!options.token_file.empty()) {
    token = ReadToken(options.token_file);
    if (token.empty()) {
      return {.code = StatusCode::kUnauthenticated,
              .message = "options.token_file: the file " + options.token_file +
                         " cannot be read, or has no token"};
    }
  }
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  return {};
}

}  // namespace counterweight::client
