#include "server/access/credentials.h"

#include <mutex>
#include <string>
#include <string_view>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpc/slice.h"
#include "grpcpp/version_info.h"

namespace counterweight::server {
namespace {

// Probes have no token.
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

std::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

// The first value of a property; empty if there is none.
std::string_view PropertyOf(grpc_auth_context* context, const char* name) {
  grpc_auth_property_iterator values =
      grpc_auth_context_find_properties_by_name(context, name);
  const grpc_auth_property* const value =
      grpc_auth_property_iterator_next(&values);
  return value == nullptr ? std::string_view()
                          : std::string_view(value->value, value->value_length);
}

// The state that gRPC keeps for one kind of connection.
struct Keeper {
  Keeper(Access* an_access, bool tls) : access(an_access), is_tls(tls) {}

  Access* const access;
  const bool is_tls;
  std::mutex mutex;                       // guards given
  std::shared_ptr<const TlsFiles> given;  // to gRPC, last
};

void CheckCall(void* state, grpc_auth_context* context,
               const grpc_metadata* metadata, size_t count,
               grpc_process_auth_metadata_done_cb done, void* done_data) {
  const auto& keeper = *static_cast<const Keeper*>(state);
  Access::Credentials credentials;
  credentials.is_tls = keeper.is_tls;
  // Where one is wanted, the handshake without it has failed.
  credentials.has_certificate = true;
  int authorizations = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = View(metadata[i].key);
    if (key == "authorization") {
      credentials.authorization = View(metadata[i].value);
      authorizations += 1;
    } else if (key == ":path") {
      credentials.needs_token = !View(metadata[i].value).starts_with(kHealth);
    }
  }
  credentials.has_several = authorizations > 1;
  if (keeper.is_tls && keeper.access->wants_certificates()) {
    credentials.certificate =
        PropertyOf(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    credentials.certificate_chain =
        PropertyOf(context, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME);
  }
  grpc_auth_property_iterator names = grpc_auth_context_find_properties_by_name(
      context, GRPC_X509_SAN_PROPERTY_NAME);
  while (const grpc_auth_property* const name =
             grpc_auth_property_iterator_next(&names)) {
    credentials.names.emplace_back(name->value, name->value_length);
  }
  const grpc::Status status = keeper.access->Check(credentials);
  done(done_data, nullptr, 0, nullptr, 0,
       static_cast<grpc_status_code>(status.error_code()),
       status.ok() ? nullptr : status.error_message().c_str());
}

// Called at each handshake. What gRPC refuses leaves it with what it had.
grpc_ssl_certificate_config_reload_status Fetch(
    void* state, grpc_ssl_server_certificate_config** config) {
  auto& keeper = *static_cast<Keeper*>(state);
  const std::shared_ptr<const TlsFiles> files = keeper.access->tls();
  const std::lock_guard<std::mutex> lock(keeper.mutex);
  if (files == keeper.given)
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{files->key.c_str(),
                                        files->certificate.c_str()};
  // gRPC 1.51 aborts without authorities, even if it requests no client's
  // certificate; any are then enough.
  const std::string& authorities =
      files->client_ca.empty() ? files->certificate : files->client_ca;
  *config =
      grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  keeper.given = files;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

// gRPC's C++ interface has neither a source of certificates that may refuse one
// and keep the last, nor checks of calls on connections without TLS. Its C
// interface has both, and is as public.
class OwnCredentials final : public grpc::ServerCredentials {
 public:
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR <= 51
  explicit OwnCredentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  ~OwnCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*other*/) override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
#else
  explicit OwnCredentials(grpc_server_credentials* credentials)
      : grpc::ServerCredentials(credentials) {}
#endif
};

// Takes both; `keeper` lives as long as gRPC has the credentials.
std::shared_ptr<grpc::ServerCredentials> WithChecks(
    grpc_server_credentials* credentials, Keeper* keeper) {
  grpc_server_credentials_set_auth_metadata_processor(
      credentials,
      {CheckCall, [](void* state) { delete static_cast<Keeper*>(state); },
       keeper});
  return std::make_shared<OwnCredentials>(credentials);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> PlainCredentials(Access* access) {
  if (!access->has_tokens()) return grpc::InsecureServerCredentials();
  return WithChecks(grpc_insecure_server_credentials_create(),
                    new Keeper(access, /*tls=*/false));
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(Access* access) {
  auto* const keeper = new Keeper(access, /*tls=*/true);
  grpc_ssl_server_credentials_options* const options =
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          access->wants_certificates()
              ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
              : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
          Fetch, keeper);
  return WithChecks(grpc_ssl_server_credentials_create_with_options(options),
                    keeper);
}

}  // namespace counterweight::server
