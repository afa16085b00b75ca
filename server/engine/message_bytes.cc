#include "server/engine/message_bytes.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace counterweight::server {

std::string MessageBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  // Fails for want of required fields, which proto3 has not.
  static_cast<void>(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

}  // namespace counterweight::server
