// The goldens through every transport and chunk size, with each number of
// threads in turn: the bytes, or the violations, of one unary call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "google/protobuf/util/field_comparator.h"
#include "google/protobuf/util/message_differencer.h"
#include "kernels/corrector.h"
#include "tests/server/dialects/golden.h"
#include "tests/server/dialects/golden_request.h"
#include "tests/server/running_server.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/server/shared_requests.h"
#include "tests/server/stream_call.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

constexpr int64_t kRegionBytes = int64_t{1} << 20;

struct Answer {
  grpc::Status status;
  v1::CorrectResponse response;
};

// A server behind Unix sockets, and a client that shares memory with it.
class Endpoint {
 public:
  explicit Endpoint(int threads)
      : running_(ConfigOf(threads), kernels::MakeCpuCorrector(threads)),
        client_(folder_.File("shm.sock")),
        inputs_(kRegionBytes),
        outputs_(kRegionBytes),
        input_handle_(
            client_.Register(inputs_.memfd(), kRegionBytes, RegionAccess::kRead)
                .handle),
        output_handle_(
            client_
                .Register(outputs_.memfd(), kRegionBytes, RegionAccess::kWrite)
                .handle) {}

  Answer Unary(const v1::CorrectRequest& request) {
    Answer answer;
    answer.status = running_.Correct(request, &answer.response);
    return answer;
  }

  Answer Streamed(const v1::CorrectRequest& request, size_t chunk_bytes) {
    Answer answer;
    answer.status =
        Stream(running_.channel(), request, chunk_bytes, &answer.response);
    return answer;
  }

  // Sends all tensors in shared memory, at offsets of every permitted
  // alignment, and every output in place.
  Answer Shared(v1::CorrectRequest request) {
    uint64_t next = 0;
    for (v1::Tensor& tensor : *request.mutable_tensors()) {
      const std::string data = tensor.data();
      std::memcpy(inputs_.data() + next, data.data(), data.size());
      SetRange(input_handle_, next, data.size(), &tensor);
      next += (data.size() + 7) / 4 * 4;
    }
    const int64_t positions = request.layout().padded().num_sequences() *
                              request.layout().padded().length();
    next = 0;
    for (const int role : request.outputs()) {
      const bool is_mask = role == v1::TENSOR_ROLE_KEEP_MASK;
      const auto size =
          static_cast<uint64_t>(is_mask ? positions : positions * 4);
      v1::Tensor* const destination = request.add_destinations();
      destination->set_role(static_cast<v1::TensorRole>(role));
      destination->set_dtype(is_mask ? v1::D_TYPE_U8 : v1::D_TYPE_F32);
      SetRange(output_handle_, next, size, destination);
      next += (size + 7) / 4 * 4;
    }
    std::memset(outputs_.data(), 0xa5, kRegionBytes);
    Answer answer = Unary(request);
    // The form of a message, for the comparison.
    for (v1::Tensor& tensor : *answer.response.mutable_tensors()) {
      EXPECT_TRUE(tensor.data().empty());
      const v1::SharedMemoryRange& range = tensor.shared_memory();
      EXPECT_EQ(range.handle(), output_handle_);
      tensor.set_data(outputs_.data() + range.offset(), range.length());
      tensor.clear_shared_memory();
    }
    return answer;
  }

 private:
  Config ConfigOf(int threads) const {
    Config config = TestConfig();
    config.listen = {{.host = "", .port = 0, .path = folder_.File("cw.sock")}};
    config.shared_memory_socket = folder_.File("shm.sock");
    config.threads = threads;
    return config;
  }

  const TemporaryFolder folder_;
  RunningServer running_;
  SharedMemoryClient client_;
  ClientMemory inputs_;
  ClientMemory outputs_;
  const std::string input_handle_;
  const std::string output_handle_;
};

std::vector<Endpoint*> Endpoints() {
  // For the program's lifetime: hundreds of cases share them.
  static std::vector<std::unique_ptr<Endpoint>> endpoints = [] {
    std::vector<std::unique_ptr<Endpoint>> made;
    for (const int threads : {1, 2, 7}) {
      made.push_back(std::make_unique<Endpoint>(threads));
    }
    return made;
  }();
  std::vector<Endpoint*> pointers;
  for (const auto& endpoint : endpoints) pointers.push_back(endpoint.get());
  return pointers;
}

void ExpectSame(const Answer& expected, Answer answer) {
  EXPECT_EQ(answer.status.error_code(), expected.status.error_code());
  EXPECT_EQ(answer.status.error_message(), expected.status.error_message());
  answer.response.clear_timing();
  // Metrics without terms are NaN.
  google::protobuf::util::DefaultFieldComparator numbers;
  numbers.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&numbers);
  EXPECT_TRUE(differencer.Compare(answer.response, expected.response));
}

class ConformanceTest : public testing::TestWithParam<Golden> {};

TEST_P(ConformanceTest, EveryWayGivesTheSameBytes) {
  v1::CorrectRequest request = RequestOf(GetParam());
  request.set_request_id("conformance");
  Answer expected = Endpoints().front()->Unary(request);
  expected.response.clear_timing();
  // How rows are split between threads has nothing to do with how they arrive.
  const std::string& name = GetParam().name;
  const unsigned turn = std::accumulate(name.begin(), name.end(), 0U);
  Endpoint* const endpoint = Endpoints()[turn % Endpoints().size()];
  ExpectSame(expected, endpoint->Unary(request));
  ExpectSame(expected, endpoint->Shared(request));
  std::vector<size_t> chunk_sizes = {63, size_t{16} << 20};
  if (turn % 7 == 0) chunk_sizes.push_back(1);  // slow
  for (const size_t chunk_bytes : chunk_sizes) {
    SCOPED_TRACE(chunk_bytes);
    ExpectSame(expected, endpoint->Streamed(request, chunk_bytes));
  }
}

TEST_P(ConformanceTest, WithoutMetricsTheRestIsTheSame) {
  v1::CorrectRequest request = RequestOf(GetParam());
  request.set_request_id("conformance");
  Answer expected = Endpoints().front()->Unary(request);
  expected.response.clear_timing();
  expected.response.clear_metrics();
  expected.response.clear_rules();
  // Rules that drop most are known by their counts.
  auto* const warnings = expected.response.mutable_warnings();
  warnings->erase(std::remove_if(warnings->begin(), warnings->end(),
                                 [](const std::string& warning) {
                                   return warning.starts_with("rule ");
                                 }),
                  warnings->end());
  request.set_omit_metrics(true);
  ExpectSame(expected, Endpoints().front()->Unary(request));
  ExpectSame(expected, Endpoints().back()->Streamed(request, 63));
}

std::string NameOf(const testing::TestParamInfo<Golden>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Areal, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("areal")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedOpenrlhf, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("dated/openrlhf")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(DatedTrl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("dated/trl")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedVerl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("dated/verl")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Miles, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("miles")), NameOf);
INSTANTIATE_TEST_SUITE_P(MsSwift, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("ms_swift")), NameOf);
INSTANTIATE_TEST_SUITE_P(NemoRl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("nemo_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Openrlhf, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("openrlhf")), NameOf);
INSTANTIATE_TEST_SUITE_P(PrimeRl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("prime_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Roll, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("roll")), NameOf);
INSTANTIATE_TEST_SUITE_P(Skyrl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("skyrl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Slime, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("slime")), NameOf);
INSTANTIATE_TEST_SUITE_P(Tinker, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("tinker")), NameOf);
INSTANTIATE_TEST_SUITE_P(Trl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("trl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Verl, ConformanceTest,
                         testing::ValuesIn(SampleGoldens("verl")), NameOf);

}  // namespace
}  // namespace counterweight::server
