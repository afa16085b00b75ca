// A server that dies, seen from the client: the connection ends.
#include "tests/client_cpp/cut_connection.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "client/cpp/client.h"
#include "kernels/corrector.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

class Cut : public testing::Test {
 protected:
  Cut()
      : running_(server::TestConfig(), kernels::MakeCpuCorrector(1)),
        batch_(64, 4096) {}

  Status Send(Transport transport, size_t bytes_up, size_t bytes_down) {
    const CutConnection cut(running_.server().addresses().front(), bytes_up,
                            bytes_down);
    Options options;
    options.transport = transport;
    options.chunk_bytes = 4096;
    Client client(cut.target(), options);
    return client.Correct(batch_.Weights(), &response_);
  }

  server::RunningServer running_;
  const TestBatch batch_;
  Response response_;
};

TEST_F(Cut, AfterTheAdmissionIsTheCallsEnd) {
  for (const size_t bytes_up : {100000, 1000000, 2300000}) {
    const Status status = Send(Transport::kStream, bytes_up, SIZE_MAX);
    EXPECT_EQ(status.code, StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(response_.attempts, 1);
    EXPECT_EQ(status.request_id, "weights");
  }
}

TEST_F(Cut, InTheAnswerIsTheCallsEnd) {
  for (const size_t bytes_down : {100000, 1000000}) {
    const Status status = Send(Transport::kStream, SIZE_MAX, bytes_down);
    EXPECT_EQ(status.code, StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(response_.attempts, 1);
  }
}

// A cut between the connection's begin and a call would not end an attempt:
// gRPC places the call on the next connection. So the cut must hit the call's
// own bytes, or precede the server's first.
TEST_F(Cut, BeforeTheAdmissionIsTriedAgain) {
  const Status status =
      Send(Transport::kStream, CutConnection::kUntilTheFirstCall, SIZE_MAX);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response_.attempts, 2);
}

TEST_F(Cut, BeforeTheConnectionIsMadeIsTriedAgain) {
  // The server's HTTP/2 settings do not arrive.
  const Status status = Send(Transport::kStream, SIZE_MAX, 0);
  ASSERT_TRUE(status.ok()) << status.ToString();
  // gRPC waits a second before it connects again, and attempts meanwhile fail
  // at once.
  EXPECT_GE(response_.attempts, 2);
}

TEST_F(Cut, OfAUnaryCallIsTriedAgainWithTheSameId) {
  const Status status = Send(Transport::kUnary, 1000000, SIZE_MAX);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response_.attempts, 2);
  EXPECT_EQ(response_.message.request_id(), "weights");
}

}  // namespace
}  // namespace counterweight::client
