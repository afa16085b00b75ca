#include "tests/fuzz/message_mutator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "google/protobuf/descriptor.h"

// libFuzzer's: changes up to `max_size` bytes in place, returns their number.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace counterweight::fuzz {

using google::protobuf::Reflection;

int MessageMutator::Below(int bound) {
  return std::uniform_int_distribution<int>(0, bound - 1)(random_);
}

void MessageMutator::Mutate(Message* message) {
  std::vector<Message*> all;
  Collect(message, &all);
  Message* const chosen =
      all[static_cast<size_t>(Below(static_cast<int>(all.size())))];
  const int fields = chosen->GetDescriptor()->field_count();
  if (fields == 0) return;
  const Field* const field = chosen->GetDescriptor()->field(Below(fields));
  if (field->is_repeated()) {
    MutateRepeated(chosen, field);
  } else {
    MutateSingular(chosen, field);
  }
}

void MessageMutator::Collect(Message* message, std::vector<Message*>* all) {
  all->push_back(message);
  const Reflection& reflection = *message->GetReflection();
  std::vector<const Field*> fields;
  reflection.ListFields(*message, &fields);
  for (const Field* field : fields) {
    if (field->cpp_type() != Field::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection.MutableMessage(message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Collect(reflection.MutableRepeatedMessage(message, field, i), all);
    }
  }
}

void MessageMutator::MutateRepeated(Message* message, const Field* field) {
  const Reflection& reflection = *message->GetReflection();
  const int size = reflection.FieldSize(*message, field);
  switch (size == 0 ? 0 : Below(4)) {
    case 0:
      return Add(message, field);
    case 1:
      return reflection.RemoveLast(message, field);
    case 2:
      return reflection.SwapElements(message, field, Below(size), Below(size));
    default:
      return SetElement(message, field, Below(size));
  }
}

void MessageMutator::MutateSingular(Message* message, const Field* field) {
  const Reflection& reflection = *message->GetReflection();
  if (Below(8) == 0) return reflection.ClearField(message, field);
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      reflection.MutableMessage(message, field);
      return;
    case Field::CPPTYPE_ENUM:
      return reflection.SetEnumValue(message, field, AnyEnum(field));
    case Field::CPPTYPE_STRING:
      return reflection.SetString(
          message, field,
          Changed(field, reflection.GetString(*message, field)));
    case Field::CPPTYPE_BOOL:
      return reflection.SetBool(message, field,
                                !reflection.GetBool(*message, field));
    case Field::CPPTYPE_DOUBLE:
      return reflection.SetDouble(message, field, AnyDouble());
    case Field::CPPTYPE_FLOAT:
      return reflection.SetFloat(message, field,
                                 static_cast<float>(AnyDouble()));
    case Field::CPPTYPE_INT32:
      return reflection.SetInt32(message, field,
                                 static_cast<int32_t>(AnyInteger()));
    case Field::CPPTYPE_INT64:
      return reflection.SetInt64(message, field,
                                 static_cast<int64_t>(AnyInteger()));
    case Field::CPPTYPE_UINT32:
      return reflection.SetUInt32(message, field,
                                  static_cast<uint32_t>(AnyInteger()));
    case Field::CPPTYPE_UINT64:
      return reflection.SetUInt64(message, field, AnyInteger());
  }
}

// The contract's repeated fields are messages, enums, integers, doubles.
void MessageMutator::SetElement(Message* message, const Field* field,
                                int index) {
  const Reflection& reflection = *message->GetReflection();
  if (field->cpp_type() == Field::CPPTYPE_ENUM) {
    reflection.SetRepeatedEnumValue(message, field, index, AnyEnum(field));
  } else if (field->cpp_type() == Field::CPPTYPE_INT64) {
    reflection.SetRepeatedInt64(message, field, index,
                                static_cast<int64_t>(AnyInteger()));
  } else if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
    reflection.SetRepeatedDouble(message, field, index, AnyDouble());
  } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
    Mutate(reflection.MutableRepeatedMessage(message, field, index));
  }
}

void MessageMutator::Add(Message* message, const Field* field) {
  const Reflection& reflection = *message->GetReflection();
  if (field->cpp_type() == Field::CPPTYPE_ENUM) {
    reflection.AddEnumValue(message, field, AnyEnum(field));
  } else if (field->cpp_type() == Field::CPPTYPE_INT64) {
    reflection.AddInt64(message, field, static_cast<int64_t>(AnyInteger()));
  } else if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
    reflection.AddDouble(message, field, AnyDouble());
  } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
    Mutate(reflection.AddMessage(message, field));
  }
}

int MessageMutator::AnyEnum(const Field* field) {
  const int count = field->enum_type()->value_count();
  // Includes one number without a name.
  return Below(count + 1);
}

double MessageMutator::AnyDouble() {
  constexpr double kUsual[] = {
      0.0,  -0.0, 0.5,  1.0,   1.25, 2.0,
      -1.0, 1e-9, 1e9,  1e308, 20.0, std::numeric_limits<double>::infinity(),
      0.2,  3.0,  -0.5, NAN};
  if (Below(4) != 0) return kUsual[Below(std::size(kUsual))];
  const uint64_t bits = AnyInteger();
  double value = 0.0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint64_t MessageMutator::AnyInteger() {
  if (Below(2) == 0) return static_cast<uint64_t>(Below(8));
  uint8_t bytes[sizeof(uint64_t)] = {static_cast<uint8_t>(Below(256))};
  LLVMFuzzerMutate(bytes, sizeof(bytes), sizeof(bytes));
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::string MessageMutator::Changed(const Field* field, std::string text) {
  constexpr size_t kMaxGrowth = 32;
  const size_t size = text.size();
  text.resize(size + kMaxGrowth);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size,
                               text.size()));
  if (field->type() != Field::TYPE_STRING) return text;
  for (char& byte : text) byte = static_cast<char>(byte & 0x7f);
  return text;
}

size_t MutateMessage(uint8_t* data, size_t size, size_t max_size,
                     unsigned int seed, google::protobuf::Message* message,
                     const std::function<void(MessageMutator*)>& change) {
  MessageMutator mutator(seed);
  if (mutator.Below(16) == 0 ||
      !message->ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (int i = mutator.Below(3); i >= 0; --i) mutator.Mutate(message);
  if (change) change(&mutator);
  const std::string bytes = message->SerializeAsString();
  if (bytes.size() > max_size) return size;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

}  // namespace counterweight::fuzz
