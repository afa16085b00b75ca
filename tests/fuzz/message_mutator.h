// Mutates messages into valid messages, which random bytes soon are not. For
// libFuzzer programs only.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_MESSAGE_MUTATOR_H_
#define COUNTERWEIGHT_TESTS_FUZZ_MESSAGE_MUTATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace counterweight::fuzz {

// Decides by `seed` and by libFuzzer's own mutations of fields' bytes.
class MessageMutator {
 public:
  explicit MessageMutator(unsigned int seed) : random_(seed) {}

  // Changes one field of *message or of a message inside.
  void Mutate(google::protobuf::Message* message);

  // In [0, bound). REQUIRES: bound >= 1.
  int Below(int bound);

 private:
  using Field = google::protobuf::FieldDescriptor;
  using Message = google::protobuf::Message;

  static void Collect(Message* message, std::vector<Message*>* all);
  void MutateRepeated(Message* message, const Field* field);
  void MutateSingular(Message* message, const Field* field);
  void SetElement(Message* message, const Field* field, int index);
  void Add(Message* message, const Field* field);

  int AnyEnum(const Field* field);
  double AnyDouble();
  uint64_t AnyInteger();
  // `text` changed; of a string field still UTF-8.
  std::string Changed(const Field* field, std::string text);

  std::minstd_rand random_;
};

// libFuzzer's mutation of an input that is a message: changes up to 3 fields of
// *message, which is parsed of the input and empty before, then calls
// `change`, if any. One input of 16, and one that does not parse, gets
// libFuzzer's own. Returns the input's new size.
size_t MutateMessage(
    uint8_t* data, size_t size, size_t max_size, unsigned int seed,
    google::protobuf::Message* message,
    const std::function<void(MessageMutator*)>& change = nullptr);

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_MESSAGE_MUTATOR_H_
