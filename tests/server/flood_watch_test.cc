#include "server/listen/flood_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/base/old_grpc.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::SizeIs;

// Strings that threads leave for a test, which waits for them.
class Names {
 public:
  void Add(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.push_back(name);
    more_.notify_all();
  }

  // All, as soon as they are at least `count`; fewer after a minute.
  std::vector<std::string> WaitFor(size_t count) {
    return Wait([&] { return names_.size() >= count; });
  }
  // All, as soon as `name` is one of them; others after a minute.
  std::vector<std::string> WaitFor(const std::string& name) {
    return Wait(
        [&] { return std::ranges::find(names_, name) != names_.end(); });
  }

 private:
  std::vector<std::string> Wait(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    more_.wait_for(lock, std::chrono::minutes(1), condition);
    return names_;
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::string> names_;
};

// A server that does not get to its calls before it ends.
class BusyServer final : public grpc::CallbackGenericService {
 public:
  BusyServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~BusyServer() override {
    EndAll();
    server_->Shutdown();
  }

  // Ends calls that have begun, and returns when they are gone.
  void EndAll() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (Call* call : calls_) call->Finish(grpc::Status::OK);
    gone_.wait_for(lock, std::chrono::minutes(1),
                   [this] { return calls_.empty(); });
  }

  int port() const { return port_; }
  // The ServerContext::peer() of each call.
  Names peers;
  // The same of calls of which the reset has arrived.
  Names resets;

 private:
  struct Call : grpc::ServerGenericBidiReactor {
    Call(BusyServer* owner, std::string the_peer)
        : server(owner), peer(std::move(the_peer)) {}
    void OnCancel() override { server->resets.Add(peer); }
    void OnDone() override { server->Remove(this); }
    BusyServer* const server;
    const std::string peer;
  };

  void Remove(Call* call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.erase(call);
    gone_.notify_all();
    delete call;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    auto* call = new Call(this, context->peer());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      calls_.insert(call);
    }
    peers.Add(context->peer());
    return call;
  }

  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable gone_;
  std::set<Call*> calls_;
  std::unique_ptr<grpc::Server> server_;
};

std::shared_ptr<grpc::Channel> Connect(const BusyServer& server) {
  std::shared_ptr<grpc::Channel> channel =
      ConnectTo("127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::minutes(1)));
  return channel;
}

class FloodWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kHasOldGrpc) {
      GTEST_SKIP() << "this gRPC needs no flood watch";
    }
  }

  void Begin(const std::shared_ptr<grpc::Channel>& channel, int count) {
    for (int i = 0; i < count; ++i) {
      calls_.push_back(std::make_unique<RawUnary>(channel, "/any/Method"));
    }
  }
  void ResetAll() { calls_.clear(); }

  BusyServer server_;
  Names floods_;

 private:
  std::vector<std::unique_ptr<RawUnary>> calls_;
};

TEST_F(FloodWatchTest, CallsThatWereResetCountUntilTheServerGetsToThem) {
  Begin(Connect(server_), 3);
  const std::string flood = server_.peers.WaitFor(3).back();
  // As many as are allowed.
  Begin(Connect(server_), 2);
  server_.peers.WaitFor(5);
  ResetAll();
  FloodWatch watch(2, [this](const std::string& peer) { floods_.Add(peer); });
  // The second look is after the first has ended.
  EXPECT_THAT(floods_.WaitFor(2), AllOf(SizeIs(Ge(2)), Each(flood)));
}

TEST_F(FloodWatchTest, CallsThatHaveEndedDoNotCount) {
  // Connections that stay open without calls.
  const std::shared_ptr<grpc::Channel> done = Connect(server_);
  Begin(done, 5);
  server_.peers.WaitFor(5);
  server_.EndAll();
  const std::shared_ptr<grpc::Channel> reset = Connect(server_);
  Begin(reset, 5);
  server_.peers.WaitFor(10);
  ResetAll();
  // gRPC counts calls that end before their reset arrives as succeeded.
  ASSERT_THAT(server_.resets.WaitFor(5), SizeIs(5));
  server_.EndAll();
  Begin(Connect(server_), 3);
  const std::string flood = server_.peers.WaitFor(13).back();
  FloodWatch watch(2, [this](const std::string& peer) { floods_.Add(peer); });
  // gRPC may count the end a look later.
  const std::vector<std::string> names = floods_.WaitFor(6);
  ASSERT_THAT(names, SizeIs(Ge(6)));
  EXPECT_THAT(std::vector(names.end() - 2, names.end()), Each(flood));
}

TEST_F(FloodWatchTest, ManyConnectionsTakeTurns) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int64_t i = 0; i < 2 * FloodWatch::kConnectionsAtOnce; ++i) {
    channels.push_back(Connect(server_));
  }
  FloodWatch watch(2, [this](const std::string& peer) { floods_.Add(peer); });
  Begin(channels.back(), 3);
  const std::string last = server_.peers.WaitFor(3).back();
  EXPECT_THAT(floods_.WaitFor(last), Contains(last));
  // Turns begin anew after the last.
  Begin(channels.front(), 3);
  const std::string first = server_.peers.WaitFor(6).back();
  EXPECT_THAT(floods_.WaitFor(first), Contains(first));
}

}  // namespace
}  // namespace counterweight::server
