// Blocks for tests.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_BLOCKS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_BLOCKS_H_

#include <gtest/gtest.h>

#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace counterweight::server {

// A block from its JSON.
inline google::protobuf::Struct Block(const std::string& json) {
  google::protobuf::Struct block;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &block);
  EXPECT_TRUE(status.ok()) << json << ": " << status.ToString();
  return block;
}

inline google::protobuf::Value String(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  return value;
}

inline google::protobuf::Value Number(double number) {
  google::protobuf::Value value;
  value.set_number_value(number);
  return value;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_BLOCKS_H_
