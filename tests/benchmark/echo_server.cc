// A gRPC server that does nothing: what the transport takes by itself. A call
// of method /echo/N with any bytes is answered with the first N of them, or
// all.
//
// Usage: echo_server ADDRESS; prints "listening", and stops when stdin closes.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

size_t AnswerSize(const std::string& method) {
  return std::strtoull(method.c_str() + method.rfind('/') + 1, nullptr, 10);
}

// The first `size` bytes of `buffer`, not copied.
grpc::ByteBuffer First(const grpc::ByteBuffer& buffer, size_t size) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  std::vector<grpc::Slice> taken;
  for (const grpc::Slice& slice : slices) {
    const size_t part = std::min(size, slice.size());
    taken.push_back(slice.sub(0, part));
    size -= part;
    if (size == 0) break;
  }
  return grpc::ByteBuffer(taken.data(), taken.size());
}

class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Echo(size_t answer_size) : answer_size_(answer_size) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "no message"});
    answer_ = First(request_, answer_size_);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  const size_t answer_size_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
};

class EchoService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Echo(AnswerSize(context->method()));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: echo_server ADDRESS\n", stderr);
    return 2;
  }
  EchoService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "echo_server: cannot listen on %s\n", argv[1]);
    return 1;
  }
  std::puts("listening");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server->Shutdown();
  return 0;
}
