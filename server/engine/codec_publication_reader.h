// Reads and checks the sums of a PublishRequest. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_READER_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "counterweight/v1/sums.pb.h"
#include "google/protobuf/message.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_publication_fields.h"
#include "server/engine/publication.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// REQUIRES: the message has a field of that name.
inline const google::protobuf::FieldDescriptor* FieldOf(
    const google::protobuf::Message& message, const char* name) {
  return message.GetDescriptor()->FindFieldByName(name);
}

class SumsReader {
 public:
  // `batch` is a new one. It is held to the limits of one that is sent to be
  // corrected, so that no message counts for more than such a one.
  SumsReader(const RequestLimits& limits, PublishedBatch* batch,
             Violations* violations)
      : limits_(limits),
        batch_(*batch),
        sums_(batch->sums),
        violations_(*violations) {}

  void Read(const v1::BatchSums& message);

 private:
  void Fail(std::string field, std::string description) {
    violations_.push_back({"sums." + std::move(field), std::move(description)});
  }
  void ReadCounts(const v1::BatchSums& message);
  void ReadWeight(const v1::WeightSums& message);
  void ReadLoss(const v1::LossSums& message);
  void ReadRules(const v1::BatchSums& message);
  void ReadStaleness(const v1::StalenessSums& message);

  // `prefix` is the message's path in the sums: "drift.".
  template <class Kernel, class Sums, size_t n>
  void Read(const CountField<Kernel, Sums> (&table)[n],
            const google::protobuf::Message& message, const std::string& prefix,
            Sums* sums);
  template <class Kernel, class Sums, size_t n>
  void Read(const NumberField<Kernel, Sums> (&table)[n],
            const google::protobuf::Message& message, const std::string& prefix,
            Sums* sums);
  // The entries' sum; -1 after a violation.
  template <class Entries, size_t n>
  int64_t ReadHistogram(const Entries& entries, const std::string& field,
                        int64_t (&to)[n]);
  // Parts of a batch with valid counts.
  void CheckTotal(const std::string& field, int64_t total, int64_t whole,
                  const char* name);
  // Sums against the histograms of the same tokens.
  void CheckHistograms();
  bool CheckCount(const std::string& field, int64_t count, Most most);
  void CheckNumber(const std::string& field, double value, Range range);
  int64_t Largest(Most most) const;

  const RequestLimits limits_;
  PublishedBatch& batch_;
  PublishedSums& sums_;
  Violations& violations_;
  bool has_counts_ = false;  // those of the batch are valid
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_READER_H_
