// Answers of requests, through the codec and one CPU thread in this process.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DECODED_ANSWERS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DECODED_ANSWERS_H_

#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec.h"

namespace counterweight::server {

struct Answer {
  Violations violations;
  std::vector<std::string> warnings;
  v1::CorrectResponse response;

  // Fields of the violations.
  std::vector<std::string> fields() const;
  // F32 numbers of an output; empty if the answer lacks it.
  std::vector<float> numbers(v1::TensorRole role) const;
  std::vector<float> gradient() const {
    return numbers(v1::TENSOR_ROLE_GRADIENT);
  }
};

Answer AnswerOf(const v1::CorrectRequest& request);

// Adds an F32 tensor.
void AddNumbers(v1::TensorRole role, const std::vector<float>& values,
                v1::CorrectRequest* request);
// Adds the response mask.
void AddMask(const std::string& mask, v1::CorrectRequest* request);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DECODED_ANSWERS_H_
