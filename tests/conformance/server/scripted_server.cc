#include "tests/conformance/server/scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "absl/strings/str_join.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace counterweight::conformance {
namespace {

std::string ReadPem(const json& path) {
  std::ifstream file(path.get<std::string>(), std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) throw std::runtime_error(path.dump() + " is empty");
  return text;
}

// The credentials that the member "tls" names.
std::shared_ptr<grpc::ServerCredentials> Credentials(const json& script) {
  if (!script.contains("tls")) return grpc::InsecureServerCredentials();
  const json& files = script["tls"];
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs = {
      {ReadPem(files.at("key")), ReadPem(files.at("certificate"))}};
  if (files.contains("client_authority")) {
    options.pem_root_certs = ReadPem(files["client_authority"]);
    options.client_certificate_request =
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(options);
}

// The addresses in one of gRPC's notations.
std::string Target(const json& script,
                   const std::vector<std::string>& addresses) {
  const std::string& first = addresses.front();
  if (script.value("dns", false)) {
    return "dns:///localhost" + first.substr(first.rfind(':'));
  }
  if (!script.contains("addresses")) return first;
  return "ipv4:" + absl::StrJoin(addresses, ",");
}

}  // namespace

ScriptedServer::ScriptedServer(const json& script, const std::string& folder,
                               const std::string& name)
    : script_(script) {
  json complete = script;
  if (!complete.contains("info")) complete["info"] = json::object();
  if (script.contains("memory")) {
    const std::string path = folder + "/" + name + ".mem";
    memory_ = std::make_unique<MemorySocket>(path, script["memory"]);
    complete["info"]["sharedMemorySocket"] = path;
  }
  if (script.value("info", json::object()).value("sharedMemorySocket", "") ==
      "absent") {
    complete["info"]["sharedMemorySocket"] = folder + "/" + name + ".absent";
  }
  service_ =
      std::make_unique<ScriptedService>(complete, &recorder_, memory_.get());
  if (script.value("unix", false)) {
    addresses_ = {"unix:" + folder + "/" + name + ".sock"};
  } else {
    for (int i = 0; i < script.value("addresses", 1); ++i) {
      addresses_.push_back(Reserve());
    }
  }
  target_ = Target(script, addresses_);
  if (script.value("absent_address", false)) target_ += "," + Reserve();
  if (script.contains("cut")) {
    const json& cut = script["cut"];
    const size_t up = cut.value("before_first_call", false)
                          ? client::CutConnection::kUntilTheFirstCall
                          : cut.value("up", SIZE_MAX);
    using Cut = client::CutConnection;
    cut_ = std::make_unique<Cut>(
        addresses_.front(), up, cut.value("down", SIZE_MAX), Cut::Watch(),
        cut.value("freeze", false) ? Cut::End::kFreeze : Cut::End::kCut,
        cut.value("unix", false) ? folder + "/" + name + ".cut" : "");
    target_ = cut_->target();
  }
  if (script.contains("listen")) {
    schedule_ =
        std::jthread([this](const std::stop_token& stop) { Schedule(stop); });
  } else {
    Listen();
  }
}

ScriptedServer::~ScriptedServer() {
  Close();
  for (const int port : reserved_) close(port);
}

std::string ScriptedServer::Reserve() {
  const int port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  reserved_.push_back(port);
  const int on = 1;
  // gRPC's listener has it too, so that both may have the port.
  setsockopt(port, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(port, any, size) != 0 || getsockname(port, any, &size) != 0) {
    throw std::runtime_error("there is no free port");
  }
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

void ScriptedServer::Listen() {
  grpc::ServerBuilder builder;
  for (const std::string& address : addresses_) {
    builder.AddListeningPort(address, Credentials(script_));
  }
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  if (script_.contains("cut")) {
    // HTTP/2 must not hold back what a frozen connection is to be filled with.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 20);
  }
  builder.RegisterService(service_.get());
  const std::lock_guard lock(mutex_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    throw std::runtime_error("cannot listen on " + addresses_.front());
  }
}

void ScriptedServer::Stop() {
  std::unique_ptr<grpc::Server> server;
  {
    const std::lock_guard lock(mutex_);
    server = std::move(server_);
  }
  if (server == nullptr) return;
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

void ScriptedServer::Schedule(const std::stop_token& stop) {
  const auto wait_until = [&](double time) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    wake_.wait_for(lock, stop,
                   std::chrono::duration<double>(time - recorder_.Now()),
                   [] { return false; });
    return !stop.stop_requested();
  };
  for (const json& period : script_["listen"]) {
    if (!wait_until(period[0])) return;
    Listen();
    if (period.size() < 2) return;
    if (!wait_until(period[1])) return;
    Stop();
  }
}

json ScriptedServer::Close() {
  if (schedule_.joinable()) {
    schedule_.request_stop();
    schedule_.join();
  }
  Stop();
  cut_.reset();
  json report = {{"calls", recorder_.calls()}};
  if (memory_ != nullptr) report["packets"] = memory_->packets();
  return report;
}

}  // namespace counterweight::conformance
