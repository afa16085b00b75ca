// Checks of one part of a request. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_FIELDS_H_

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "server/engine/codec_enums.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Reads fields of a message and reports invalid ones by their path, which
// begins with `prefix`, e.g. "method.config.".
class FieldReader {
 public:
  FieldReader(std::string prefix, Violations* violations)
      : prefix_(std::move(prefix)), violations_(violations) {}

  void Fail(const std::string& field, std::string description) {
    violations_->push_back({prefix_ + field, std::move(description)});
  }

  // Reads a required choice; `otherwise` and a violation if it is missing.
  template <class Kernel, class Wire, size_t size>
  Kernel Required(const EnumPair<Kernel, Wire> (&table)[size], Wire wire,
                  const std::string& field, Kernel otherwise) {
    if (const auto kernel = FromWire(table, wire)) return *kernel;
    Fail(field, "is required: " + Choices(table));
    return otherwise;
  }

  // Reads a choice; the default is the table's first row.
  template <class Kernel, class Wire, size_t size>
  Kernel Optional(const EnumPair<Kernel, Wire> (&table)[size], Wire wire,
                  const std::string& field) {
    if (const auto kernel = FromWire(table, wire)) return *kernel;
    if (wire != Wire{}) Fail(field, "is unknown: " + Choices(table));
    return table[0].kernel;
  }

  // Reads a number: `absent` if it is missing, a violation unless it is finite.
  double Number(bool has, double value, double absent,
                const std::string& field) {
    if (!has) return absent;
    if (std::isfinite(value)) return value;
    Fail(field, "must be a finite number; leave it out for none");
    return absent;
  }

 private:
  const std::string prefix_;
  Violations* const violations_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_FIELDS_H_
