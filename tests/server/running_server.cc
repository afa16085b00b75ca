#include "tests/server/running_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "server/base/blocking_call.h"
#include "spdlog/sinks/ostream_sink.h"

namespace counterweight::server {
namespace {

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

void AddTensor(v1::TensorRole role, v1::DType dtype, std::string bytes,
               v1::CorrectRequest* request) {
  v1::Tensor* const tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(dtype);
  tensor->set_data(std::move(bytes));
}

}  // namespace

Config TestConfig() {
  Config config;
  config.listen = {{.host = "127.0.0.1", .port = 0, .path = ""}};
  config.metrics_listen.reset();
  config.threads = 2;
  // A slow machine must not look like a broken client. Longer than any test may
  // run: one that relies on a limit fails, unless it sets its own.
  config.unary_timeout_s = 3600;
  config.stream_timeout_s = 3600;
  config.max_queue_seconds = 3600;
  config.keepalive_timeout_s = 3600;
  return config;
}

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The time for one attempt to connect, in spite of the name.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 600'000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

RunningServer::RunningServer(const Config& config)
    : RunningServer(config, nullptr) {}

RunningServer::RunningServer(const Config& config,
                             std::unique_ptr<kernels::Corrector> corrector)
    : config_(config) {
  if (corrector == nullptr) {
    corrector = std::make_unique<FakeCorrector>(backend_);
  }
  auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
  logger->set_pattern("%v");
  std::string error;
  server_ = Server::Start(config, std::move(corrector), logger, &error);
  if (server_ == nullptr) throw std::runtime_error(error);
  channel_ = ConnectTo(server_->addresses().front());
  stub_ = v1::CorrectionService::NewStub(channel_);
}

void RunningServer::SetCallTimeouts(double seconds) {
  config_.unary_timeout_s = config_.stream_timeout_s = seconds;
  server_->SetConfig(config_);
}

grpc::Status RunningServer::Correct(const v1::CorrectRequest& request,
                                    v1::CorrectResponse* response,
                                    grpc::ClientContext* context) {
  grpc::ClientContext own;
  return stub_->Correct(context == nullptr ? &own : context, request, response);
}

grpc::Status RunningServer::Correct(const v1::CorrectRequest& request) {
  v1::CorrectResponse response;
  return Correct(request, &response);
}

int RunningServer::Health(const std::string& service) {
  // HealthCheckRequest and -Response are, on the wire, a string and an enum
  // with number 1, just as these wrappers.
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  grpc::ClientContext context;
  const grpc::Status status = BlockingCall(
      channel_, "/grpc.health.v1.Health/Check", &context, request, &response);
  return status.ok() ? response.value() : -1;
}

FileDescriptor RunningServer::ConnectToMetrics() {
  // "http://127.0.0.1:9464/metrics"
  const std::string& url = server_->metrics_url();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
      0) {
    throw std::runtime_error("cannot connect to " + url);
  }
  return connection;
}

std::string RunningServer::Get(const std::string& path) {
  const FileDescriptor connection = ConnectToMetrics();
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (write(connection.get(), request.data(), request.size()) > 0) {
    char buffer[4096];
    for (ssize_t n = 0;
         (n = read(connection.get(), buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  return answer;
}

std::string RunningServer::Stop() {
  server_ = nullptr;
  return log_.str();
}

v1::CorrectRequest SmallRequest(const std::string& request_id,
                                const std::string& run) {
  v1::CorrectRequest request;
  request.set_request_id(request_id);
  request.mutable_labels()->set_run(run);
  request.mutable_layout()->mutable_padded()->set_num_sequences(2);
  request.mutable_layout()->mutable_padded()->set_length(3);
  AddTensor(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32,
            Bytes<float>({-1, -1, -1, -1, -1, -1}), &request);
  AddTensor(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32,
            Bytes<float>({-1, -1.5F, -0.5F, -1, -3, -1}), &request);
  AddTensor(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8,
            Bytes<uint8_t>({1, 1, 1, 1, 1, 0}), &request);
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  return request;
}

std::string PushbackOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace counterweight::server
